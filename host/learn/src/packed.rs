//! Prompts and their completions in one flat list of tokens, each prompt once. All samples of a
//! group continue the same prompt, so they share its hidden states, keys and values. The gradient
//! is that of a prompt per sample, at a fraction of the tokens.

use tch::{Device, Kind, Tensor};

use corver_pretrained::ModelConfig;

use crate::device::upload;
use crate::error::{LearnError, Result};

/// The tokens of a pass, in groups that attend to themselves alone.
pub(crate) struct Packed {
    /// `[1, N]` i64: a prompt, its completions, the next prompt, …
    pub(crate) tokens: Tensor,
    /// `[N]` i64, position of each token in its own sequence.
    pub(crate) positions: Tensor,
    pub(crate) groups: Vec<PackedGroup>,
}

/// A prompt and the completions that continue it.
pub(crate) struct PackedGroup {
    /// Index of the prompt's first token in the flat list.
    pub(crate) start: i64,
    /// Tokens of the prompt, P.
    pub(crate) prompt: i64,
    /// `None` if no completion has tokens in this pass.
    pub(crate) completions: Option<PackedCompletions>,
}

/// The completions of a group as rows of equal length.
pub(crate) struct PackedCompletions {
    /// Number of rows, R.
    pub(crate) rows: i64,
    /// Tokens of the longest row, T.
    pub(crate) longest: i64,
    /// `[R · T]` i64, index of each token in the flat list. A shorter row is padded with a token of
    /// the prompt: no token attends to the padding, and `present` omits it.
    pub(crate) token_index: Tensor,
    /// `[n]` i64, indices in `[R · T]` of the tokens without padding, in the order of the flat list.
    pub(crate) present: Tensor,
    /// `[T, P + T]` bool, true if a token attends to another: the prompt, earlier tokens, itself.
    pub(crate) visible: Tensor,
}

impl PackedGroup {
    /// Selects the prompt from `x` `[1, N, heads, Dh]` → `[1, P, heads, Dh]`.
    pub(crate) fn prompt_of(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_narrow(1, self.start, self.prompt)?)
    }
}

impl PackedCompletions {
    /// Selects the completions from `x` `[1, N, heads, Dh]` → `[R, T, heads, Dh]`.
    pub(crate) fn rows_of(&self, x: &Tensor) -> Result<Tensor> {
        let (_, _, heads, width) = x.size4()?;
        let tokens = x.f_index_select(1, &self.token_index)?;
        Ok(tokens.f_view([self.rows, self.longest, heads, width])?)
    }

    /// Selects the completions from `x`, each after `prompt` `[1, P, heads, Dh]` → `[R, P + T,
    /// heads, Dh]`.
    pub(crate) fn after_prompt(&self, prompt: &Tensor, x: &Tensor) -> Result<Tensor> {
        let prompts = prompt.f_expand([self.rows, -1, -1, -1], false)?;
        Ok(Tensor::f_cat(&[prompts, self.rows_of(x)?], 1)?)
    }
}

impl Packed {
    /// Packs `(prompt, completions)`; a completion may be empty.
    pub(crate) fn new(
        config: &ModelConfig,
        device: Device,
        groups: &[(&[u32], Vec<&[u32]>)],
    ) -> Result<Self> {
        let mut flat: Vec<i64> = Vec::new();
        let mut positions = Vec::new();
        let mut packed = Vec::new();
        for (prompt, completions) in groups {
            let start = flat.len() as i64;
            let length = prompt.len() as i64;
            check_sequence(config, prompt)?;
            flat.extend(prompt.iter().map(|&id| i64::from(id)));
            positions.extend(0..length);
            let longest = completions.iter().map(|c| c.len()).max().unwrap_or(0) as i64;
            let mut token_index = Vec::new();
            let mut present = Vec::new();
            for (row, completion) in completions.iter().enumerate() {
                let first = flat.len() as i64;
                let tokens = completion.len() as i64;
                check_sequence(config, &[*prompt, *completion].concat())?;
                flat.extend(completion.iter().map(|&id| i64::from(id)));
                positions.extend(length..length + tokens);
                present.extend((0..tokens).map(|t| row as i64 * longest + t));
                token_index.extend(first..first + tokens);
                token_index.resize((row + 1) * longest as usize, start);
            }
            let rows = match longest {
                0 => None,
                _ => Some(PackedCompletions {
                    rows: completions.len() as i64,
                    longest,
                    token_index: upload(&token_index, device)?,
                    present: upload(&present, device)?,
                    visible: Tensor::f_ones([longest, length + longest], (Kind::Bool, device))?
                        .f_tril(length)?,
                }),
            };
            packed.push(PackedGroup { start, prompt: length, completions: rows });
        }
        Ok(Self {
            tokens: upload(&flat, device)?.f_unsqueeze(0)?,
            positions: upload(&positions, device)?,
            groups: packed,
        })
    }
}

/// Checks that the model has positions and embeddings for a sequence.
///
/// # Errors
/// Fails if the sequence is empty or too long, or has an id beyond the vocabulary.
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
