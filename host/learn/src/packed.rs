//! Prompts and their completions in one flat list of tokens, each prompt once: all samples of a
//! group continue the same one, so its hidden states, keys and values are theirs too. The gradient
//! is that of a prompt per sample, at a fraction of the tokens.

use tch::{Device, Kind, Tensor};

use corver_pretrained::ModelConfig;

use crate::error::{LearnError, Result};

/// The tokens of a pass, and who sees whom.
pub(crate) struct Packed {
    /// `[1, N]` i64: a prompt, its completions, the next prompt, …
    pub(crate) tokens: Tensor,
    /// `[N]` i64, each token's place in its own sequence.
    pub(crate) positions: Tensor,
    pub(crate) groups: Vec<Group>,
}

/// A prompt and the completions that continue it.
pub(crate) struct Group {
    /// Where the prompt begins in the flat list.
    pub(crate) start: i64,
    /// P, the prompt's tokens.
    pub(crate) prompt: i64,
    /// `None` where no completion has tokens here.
    pub(crate) completions: Option<Completions>,
}

/// The completions of a group as rows of equal length.
pub(crate) struct Completions {
    /// R
    pub(crate) rows: i64,
    /// T, tokens of the longest.
    pub(crate) longest: i64,
    /// `[R · T]` i64, where each token is in the flat list. A row that is shorter ends in tokens of
    /// the prompt, which no token sees and which are dropped again.
    pub(crate) places: Tensor,
    /// `[n]` i64, where in `[R · T]` the tokens are that exist, in the order of the flat list.
    pub(crate) present: Tensor,
    /// `[T, P + T]` bool: a token sees the prompt, those before it, and itself.
    pub(crate) visible: Tensor,
}

impl Packed {
    /// Packs `(prompt, completions)`; a completion may be empty.
    pub(crate) fn new(
        config: &ModelConfig,
        device: Device,
        groups: &[(&[u32], Vec<&[u32]>)],
    ) -> Result<Self> {
        let (mut flat, mut positions, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        for (prompt, completions) in groups {
            let (start, length) = (flat.len() as i64, prompt.len() as i64);
            check_sequence(config, prompt)?;
            flat.extend_from_slice(prompt);
            positions.extend(0..length);
            let longest = completions.iter().map(|c| c.len()).max().unwrap_or(0) as i64;
            let (mut places, mut present) = (Vec::new(), Vec::new());
            for (row, completion) in completions.iter().enumerate() {
                let (first, tokens) = (flat.len() as i64, completion.len() as i64);
                check_sequence(config, &[*prompt, *completion].concat())?;
                flat.extend_from_slice(completion);
                positions.extend(length..length + tokens);
                present.extend((0..tokens).map(|t| row as i64 * longest + t));
                places.extend(first..first + tokens);
                places.resize((row + 1) * longest as usize, start);
            }
            let completions = match longest {
                0 => None,
                _ => Some(Completions {
                    rows: completions.len() as i64,
                    longest,
                    places: integers(&places, device)?,
                    present: integers(&present, device)?,
                    visible: Tensor::f_ones([longest, length + longest], (Kind::Bool, device))?
                        .f_tril(length)?,
                }),
            };
            packed.push(Group { start, prompt: length, completions });
        }
        let flat: Vec<i64> = flat.into_iter().map(i64::from).collect();
        let tokens = integers(&flat, device)?.f_unsqueeze(0)?;
        Ok(Self { tokens, positions: integers(&positions, device)?, groups: packed })
    }
}

/// Checks that the model has positions and embeddings for a sequence.
///
/// # Errors
/// If the sequence is empty or too long, or holds an id beyond the vocabulary.
pub(crate) fn check_sequence(config: &ModelConfig, sequence: &[u32]) -> Result<()> {
    let max_positions = config.max_positions;
    if sequence.is_empty() || sequence.len() > max_positions {
        return Err(LearnError::Input {
            what: "token sequence",
            expected: format!("1 to {max_positions} tokens"),
            got: format!("{} tokens", sequence.len()),
        });
    }
    if let Some(id) = sequence.iter().find(|&&id| id as usize >= config.vocab_size) {
        return Err(LearnError::Input {
            what: "token id",
            expected: format!("ids below {} (the model's vocabulary)", config.vocab_size),
            got: id.to_string(),
        });
    }
    Ok(())
}

fn integers(values: &[i64], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::testing::tiny;

    fn pack(model: &Model, groups: &[(&[u32], Vec<&[u32]>)]) -> Result<Packed> {
        Packed::new(model.config(), model.device(), groups)
    }

    #[test]
    fn packed_hidden_states_match_separate_sequences() {
        for family in ["llama", "qwen2", "qwen3", "olmo2"] {
            let model = tiny(family, 1);
            let groups: [(&[u32], Vec<&[u32]>); 4] = [
                (&[1, 2, 3], vec![&[4, 5, 6, 7], &[], &[8]]),
                (&[9], vec![&[], &[]]),
                (&[10, 11, 12, 13], vec![&[4, 5]]),
                (&[14, 15], vec![]),
            ];
            let packed = model.hidden_packed(&pack(&model, &groups).unwrap()).unwrap();
            let mut next = 0;
            let mut same = |whole: &Tensor, first: usize, tokens: usize| {
                let expected = whole.select(0, 0).narrow(0, first as i64, tokens as i64);
                let got = packed.narrow(0, next, tokens as i64);
                next += tokens as i64;
                assert!(
                    (got - expected).abs().sum(Kind::Float).double_value(&[]) < 1e-4,
                    "{family}, before {next}"
                );
            };
            let whole = |tokens: &[u32]| model.hidden(&model.batch(&[tokens]).unwrap()).unwrap();
            for (prompt, completions) in &groups {
                same(&whole(prompt), 0, prompt.len());
                for completion in completions {
                    same(&whole(&[*prompt, *completion].concat()), prompt.len(), completion.len());
                }
            }
            assert_eq!(next, packed.size()[0]);
        }
    }

    #[test]
    fn overlong_or_invalid_sequences_are_rejected() {
        let model = tiny("llama", 1);
        let long = [1; 60];
        assert!(pack(&model, &[(&long, vec![&[1; 4]])]).is_ok());
        assert!(pack(&model, &[(&long, vec![&[1; 5]])]).is_err());
        assert!(pack(&model, &[(&[], vec![&[1]])]).is_err());
        assert!(pack(&model, &[(&[1], vec![&[99]])]).is_err());
    }
}
