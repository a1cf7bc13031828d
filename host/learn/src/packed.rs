//! Prompts and their completions in one flat list of tokens, each prompt once. All samples of a
//! group continue the same prompt, so they share its hidden states, keys and values. The gradient
//! is that of a prompt per sample, at a fraction of the tokens.

use tch::{Device, Kind, Tensor};

use corver_pretrained::ModelConfig;

use crate::device::upload;
use crate::error::{LearnError, Result};
use crate::libtorch::{self, SequenceStarts};

/// The tokens of a pass, in groups that attend to themselves alone.
pub(crate) struct Packed {
    /// `[1, N]` i64: a prompt, its completions, the next prompt, …
    pub(crate) tokens: Tensor,
    /// `[N]` i64, position of each token in its own sequence.
    pub(crate) positions: Tensor,
    pub(crate) layout: PackedLayout,
}

/// Layout of the queries and keys of a pass.
pub(crate) enum PackedLayout {
    /// One call of flash attention for all sequences of different lengths.
    Sequences(Sequences),
    /// Plain attention, group by group, over rows of equal length.
    Rows(Vec<PackedGroup>),
}

/// Sequences whose queries follow each other in the flat list: each prompt, and each completion after
/// its prompt. The last query of a sequence attends to all of its keys.
pub(crate) struct Sequences {
    /// `[K]` i64, index in the flat list of each key: those of a prompt, and for each completion those
    /// of its prompt and its own.
    key_index: Tensor,
    pub(crate) query_starts: SequenceStarts,
    pub(crate) key_starts: SequenceStarts,
}

/// A prompt and the completions that continue it, for plain attention.
pub(crate) struct PackedGroup {
    /// Index of the prompt's first token in the flat list.
    start: i64,
    /// Tokens of the prompt, P.
    prompt: i64,
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

/// Sequences of a group of [`Packed`].
pub(crate) type Group<'a> = (&'a [u32], Vec<&'a [u32]>);

impl Sequences {
    fn new(device: Device, groups: &[Group<'_>]) -> Result<Self> {
        let mut key_index = Vec::new();
        let mut query_lengths = Vec::new();
        let mut key_lengths = Vec::new();
        let mut end = 0;
        for (prompt, completions) in groups {
            let start = end;
            let length = prompt.len() as i64;
            end += length;
            key_index.extend(start..end);
            query_lengths.push(length);
            key_lengths.push(length);
            for completion in completions.iter().filter(|completion| !completion.is_empty()) {
                let first = end;
                let tokens = completion.len() as i64;
                end += tokens;
                key_index.extend(start..start + length);
                key_index.extend(first..end);
                query_lengths.push(tokens);
                key_lengths.push(length + tokens);
            }
        }
        Ok(Self {
            key_index: upload(&key_index, device)?,
            query_starts: SequenceStarts::new(&query_lengths, device)?,
            key_starts: SequenceStarts::new(&key_lengths, device)?,
        })
    }

    /// Selects the keys from `x` `[1, N, Hkv, Dh]` → `[K, Hkv, Dh]`.
    pub(crate) fn keys_of(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_squeeze_dim(0)?.f_index_select(0, &self.key_index)?)
    }
}

impl PackedGroup {
    /// Lays out the group whose prompt begins at `start` of the flat list.
    fn new(device: Device, start: i64, (prompt, completions): &Group<'_>) -> Result<Self> {
        let length = prompt.len() as i64;
        let longest = completions.iter().map(|c| c.len()).max().unwrap_or(0) as i64;
        let mut token_index = Vec::new();
        let mut present = Vec::new();
        let mut first = start + length;
        for (row, completion) in completions.iter().enumerate() {
            let tokens = completion.len() as i64;
            present.extend((0..tokens).map(|t| row as i64 * longest + t));
            token_index.extend(first..first + tokens);
            token_index.resize((row + 1) * longest as usize, start);
            first += tokens;
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
        Ok(Self { start, prompt: length, completions: rows })
    }

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
    /// Packs prompts with their completions, of which some may be empty, for a model with weights of
    /// this kind.
    pub(crate) fn new(
        config: &ModelConfig,
        kind: Kind,
        device: Device,
        groups: &[Group<'_>],
    ) -> Result<Self> {
        let mut flat: Vec<i64> = Vec::new();
        let mut positions = Vec::new();
        let mut starts = Vec::with_capacity(groups.len());
        for (prompt, completions) in groups {
            let length = prompt.len() as i64;
            check_sequence(config, prompt)?;
            starts.push(flat.len() as i64);
            flat.extend(prompt.iter().map(|&id| i64::from(id)));
            positions.extend(0..length);
            for completion in completions {
                check_sequence(config, &[*prompt, *completion].concat())?;
                flat.extend(completion.iter().map(|&id| i64::from(id)));
                positions.extend(length..length + completion.len() as i64);
            }
        }
        let layout = if libtorch::has_flash(kind, device) {
            PackedLayout::Sequences(Sequences::new(device, groups)?)
        } else {
            let mut rows = Vec::with_capacity(groups.len());
            for (&start, group) in starts.iter().zip(groups) {
                rows.push(PackedGroup::new(device, start, group)?);
            }
            PackedLayout::Rows(rows)
        };
        Ok(Self {
            tokens: upload(&flat, device)?.f_unsqueeze(0)?,
            positions: upload(&positions, device)?,
            layout,
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
        Packed::new(model.config(), model.kind(), model.device(), groups)
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

    /// Computes causal attention sequence by sequence, where the last query attends to every key:
    /// what flash attention computes of [`Sequences`].
    fn attend_one_by_one(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &Sequences) -> Tensor {
        let bounds = |starts: &SequenceStarts| Vec::<i32>::try_from(&starts.offsets).unwrap();
        let part = |x: &Tensor, bounds: &[i32], n: usize| {
            x.narrow(0, i64::from(bounds[n]), i64::from(bounds[n + 1] - bounds[n]))
        };
        let (queries, keys) = (bounds(&sequences.query_starts), bounds(&sequences.key_starts));
        let (k, v) = (sequences.keys_of(k).unwrap(), sequences.keys_of(v).unwrap());
        let mut mixed = Vec::new();
        for n in 0..queries.len() - 1 {
            let q = part(&q.squeeze_dim(0), &queries, n).transpose(0, 1); // [H, T, Dh]
            let [k, v] =
                [&k, &v].map(|x| part(x, &keys, n).repeat_interleave_self_int(2, 1, None::<i64>));
            let scores = q.matmul(&k.permute([1, 2, 0])) / 2.0; // √Dh
            let (t, s) = (scores.size()[1], scores.size()[2]);
            let later = Tensor::ones([t, s], (Kind::Bool, Device::Cpu)).triu(s - t + 1);
            let weights = scores.masked_fill(&later, f64::NEG_INFINITY).softmax(-1, Kind::Float);
            mixed.push(weights.matmul(&v.transpose(0, 1)).transpose(0, 1));
        }
        Tensor::cat(&mixed, 0).unsqueeze(0)
    }

    #[test]
    fn sequences_and_rows_have_equal_attention_and_gradients() {
        let groups: [Group<'_>; 4] = [
            (&[1, 2, 3], vec![&[4, 5, 6, 7], &[], &[8]]),
            (&[9], vec![&[], &[]]),
            (&[10, 11, 12, 13], vec![&[4, 5]]),
            (&[14, 15], vec![]),
        ];
        let model = tiny("llama", 1); // 4 heads, 2 of keys, 4 dimensions
        let packed = pack(&model, &groups).unwrap();
        let tokens = packed.tokens.size()[1];
        let noise = |heads: i64, factor: f64| {
            let numbers = Tensor::arange(tokens * heads * 4, (Kind::Float, Device::Cpu));
            ((numbers * factor).sin() * 2.0).view([1, tokens, heads, 4])
        };
        let results = |attend: &dyn Fn(&Tensor, &Tensor, &Tensor) -> Tensor| {
            let inputs = [noise(4, 0.7), noise(2, 1.3), noise(2, 0.3)];
            let inputs = inputs.map(|x| x.set_requires_grad(true));
            let [q, k, v] = &inputs;
            let mixed = attend(q, k, v);
            let loss = (&mixed * noise(4, 1.9)).sum(Kind::Float);
            let mut results = Tensor::run_backward(&[loss], &inputs, false, false);
            results.push(mixed.detach());
            results
        };
        let sequences = Sequences::new(Device::Cpu, &groups).unwrap();
        assert_eq!(sequences.query_starts.longest, 4);
        assert_eq!(sequences.key_starts.longest, 7);
        let flat = results(&|q, k, v| attend_one_by_one(q, k, v, &sequences));
        let rows = results(&|q, k, v| model.attend_packed(q, k, v, &packed).unwrap());
        for (flat, rows) in flat.iter().zip(&rows) {
            assert!((flat - rows).abs().max().double_value(&[]) < 1e-5);
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
