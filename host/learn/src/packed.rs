//! Prompts and their completions in one flat list of tokens. A prefix that all prompts share is in it
//! once, and then the rest of each prompt. All samples of a group continue the same prompt, so they
//! share its hidden states, keys and values. The gradient is that of a prompt per sample, at a fraction
//! of the tokens.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use corver_pretrained::ModelConfig;

use crate::device::upload;
use crate::error::{LearnError, Result};
use crate::libtorch::{self, SequenceStarts};
use crate::prompts::PromptKeys;

/// Shortest prefix that is shared, tokens: the keys of a prefix are copied for each prompt.
const MIN_PREFIX: usize = 16;

/// A prompt, and the completions that continue it.
pub(crate) type Group<'a> = (&'a [u32], Vec<&'a [u32]>);

/// The tokens of a pass.
pub(crate) struct Packed {
    /// `[1, N]` i64, ids of the flat list.
    pub(crate) tokens: Tensor,
    /// `[N]` i64, position of each token in its own sequence.
    pub(crate) positions: Tensor,
    pub(crate) places: Places,
    pub(crate) layout: PackedLayout,
}

/// Indices of prompts and completions in the flat list.
#[derive(Default)]
pub(crate) struct Places {
    /// Length of the prefix that all prompts share, with which the flat list begins; 0 if none is
    /// shared.
    prefix: i64,
    /// `[Q]` index of each prompt's last token.
    pub(crate) prompt_ends: Vec<i64>,
    /// `[Q]` index of the first token of each prompt's completions, which follow each other.
    pub(crate) completion_starts: Vec<i64>,
}

/// Layout of the queries and keys of a pass.
pub(crate) enum PackedLayout {
    /// One call of flash attention for all segments, of different lengths.
    Sequences(Sequences),
    /// Plain attention, one call for each list of siblings, in the order of the flat list.
    Rows(Vec<SiblingRows>),
}

/// Adjacent segments of the flat list that continue the same tokens: the completions of a prompt; or
/// alone, a prompt, or its rest after the prefix.
struct Siblings<'a> {
    /// Parts of the flat list that the segments continue, empty or not: the prefix, and the prompt after
    /// it.
    context: [Range<i64>; 2],
    segments: Vec<&'a [u32]>,
}

/// Segments for flash attention. The last query of a segment attends to all of its keys.
pub(crate) struct Sequences {
    /// `[K]` i64, index in the flat list of each key: for each segment those that it continues, and its
    /// own.
    key_index: Tensor,
    pub(crate) query_starts: SequenceStarts,
    pub(crate) key_starts: SequenceStarts,
}

/// Siblings as rows of equal length, for plain attention.
pub(crate) struct SiblingRows {
    /// Parts of the flat list that the rows continue, C tokens. Either may be empty.
    context: [Range<i64>; 2],
    /// Index in the flat list of the first token.
    start: i64,
    /// Number of rows, R.
    rows: i64,
    /// Tokens of the longest row, T.
    longest: i64,
    /// `None` if all rows have the same length.
    padding: Option<Padding>,
    /// `[T, C + T]` bool, true if a token attends to another: the context, earlier ones of its row,
    /// itself. `None` if C is 0: attention is causal.
    pub(crate) visible: Option<Tensor>,
}

/// Selections between the flat list and rows of equal length.
struct Padding {
    /// `[R · T]` i64, index of each token in the flat list. A shorter row is padded with the first
    /// token of all rows: no token attends to the padding, and `present` omits it.
    token_index: Tensor,
    /// `[n]` i64, indices in `[R · T]` of the tokens without padding, in the order of the flat list.
    present: Tensor,
}

impl Sequences {
    fn new(device: Device, order: &[Siblings<'_>]) -> Result<Self> {
        let mut key_index = Vec::new();
        let mut query_lengths = Vec::new();
        let mut key_lengths = Vec::new();
        let mut end = 0;
        for siblings in order {
            for segment in siblings.segments.iter().filter(|segment| !segment.is_empty()) {
                let start = end;
                end += segment.len() as i64;
                key_index.extend(siblings.context.iter().cloned().flatten());
                key_index.extend(start..end);
                query_lengths.push(end - start);
                key_lengths.push(siblings.first_position() + end - start);
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

impl Siblings<'_> {
    /// Returns the number of tokens that the segments continue.
    fn first_position(&self) -> i64 {
        self.context.iter().map(|part| part.end - part.start).sum()
    }

    fn num_tokens(&self) -> i64 {
        self.segments.iter().map(|segment| segment.len() as i64).sum()
    }
}

impl SiblingRows {
    /// Lays out siblings whose first token is at `start` of the flat list.
    fn new(device: Device, start: i64, siblings: &Siblings<'_>) -> Result<Self> {
        let segments = &siblings.segments;
        let longest = segments.iter().map(|segment| segment.len()).max().unwrap_or(0);
        let is_even = segments.iter().all(|segment| segment.len() == longest);
        let padding =
            if is_even { None } else { Some(Padding::new(device, start, segments, longest)?) };
        let first_position = siblings.first_position();
        let visible = if first_position == 0 {
            None
        } else {
            let shape = [longest as i64, first_position + longest as i64];
            Some(Tensor::f_ones(shape, (Kind::Bool, device))?.f_tril(first_position)?)
        };
        Ok(Self {
            context: siblings.context.clone(),
            start,
            rows: segments.len() as i64,
            longest: longest as i64,
            padding,
            visible,
        })
    }

    /// Selects the rows from `x` `[1, N, heads, Dh]` → `[R, T, heads, Dh]`.
    pub(crate) fn rows_of(&self, x: &Tensor) -> Result<Tensor> {
        let (_, _, heads, width) = x.size4()?;
        let tokens = match &self.padding {
            None => x.f_narrow(1, self.start, self.rows * self.longest)?,
            Some(padding) => x.f_index_select(1, &padding.token_index)?,
        };
        Ok(tokens.f_reshape([self.rows, self.longest, heads, width])?)
    }

    /// Selects the rows from `x`, each after the tokens that it continues → `[R, C + T, heads, Dh]`.
    pub(crate) fn rows_with_context(&self, x: &Tensor) -> Result<Tensor> {
        let rows = self.rows_of(x)?;
        if self.visible.is_none() {
            return Ok(rows);
        }
        let mut parts = Vec::with_capacity(3);
        for part in &self.context {
            let length = part.end - part.start;
            if length > 0 {
                let tokens = x.f_narrow(1, part.start, length)?;
                parts.push(tokens.f_expand([self.rows, -1, -1, -1], false)?);
            }
        }
        parts.push(rows);
        Ok(Tensor::f_cat(&parts, 1)?)
    }

    /// Converts rows `[R, T, heads, Dh]` to their part of the flat list, `[1, n, heads, Dh]`.
    pub(crate) fn flatten(&self, rows: &Tensor) -> Result<Tensor> {
        let (_, _, heads, width) = rows.size4()?;
        let flat = rows.f_reshape([1, self.rows * self.longest, heads, width])?;
        match &self.padding {
            None => Ok(flat),
            Some(padding) => Ok(flat.f_index_select(1, &padding.present)?),
        }
    }
}

impl Padding {
    fn new(device: Device, start: i64, segments: &[&[u32]], longest: usize) -> Result<Self> {
        let mut token_index = Vec::new();
        let mut present = Vec::new();
        let mut first = start;
        for (row, segment) in segments.iter().enumerate() {
            let tokens = segment.len() as i64;
            present.extend((0..tokens).map(|t| (row * longest) as i64 + t));
            token_index.extend(first..first + tokens);
            token_index.resize((row + 1) * longest, start);
            first += tokens;
        }
        Ok(Self { token_index: upload(&token_index, device)?, present: upload(&present, device)? })
    }
}

/// Arranges prompts, none of which is empty, and completions. Returns their places and the segments in
/// the order of the flat list: the prefix, and for each prompt its other tokens and its completions.
fn arrange<'a>(groups: &[Group<'a>], prefix: usize) -> (Places, Vec<Siblings<'a>>) {
    let shared = 0..prefix as i64;
    let mut places = Places { prefix: shared.end, ..Places::default() };
    let mut order = Vec::with_capacity(2 * groups.len() + 1);
    if prefix > 0 {
        let segments = vec![&groups[0].0[..prefix]];
        order.push(Siblings { context: [0..0, 0..0], segments });
    }
    let mut end = shared.end;
    for (prompt, completions) in groups {
        let rest = end..end + (prompt.len() - prefix) as i64;
        places.prompt_ends.push(rest.end - 1);
        places.completion_starts.push(rest.end);
        order.push(Siblings { context: [shared.clone(), 0..0], segments: vec![&prompt[prefix..]] });
        let siblings =
            Siblings { context: [shared.clone(), rest.clone()], segments: completions.clone() };
        end = rest.end + siblings.num_tokens();
        if end > rest.end {
            order.push(siblings);
        }
    }
    (places, order)
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
        for (prompt, completions) in groups {
            check_sequence(config, prompt)?;
            for completion in completions {
                check_sequence(config, &[*prompt, *completion].concat())?;
            }
        }
        let has_flash = libtorch::has_flash(kind, device);
        let has_completions = groups.iter().any(|(_, completions)| !completions.is_empty());
        // The gradient of a key that flash attention reads from several places is summed in bf16: a
        // prefix would be read once for each completion of the pass.
        let prefix = if has_flash && has_completions { 0 } else { shared_prefix(groups) };
        let (places, order) = arrange(groups, prefix);
        let mut flat: Vec<i64> = Vec::new();
        let mut positions = Vec::new();
        for siblings in &order {
            let first = siblings.first_position();
            for segment in &siblings.segments {
                flat.extend(segment.iter().map(|&id| i64::from(id)));
                positions.extend(first..first + segment.len() as i64);
            }
        }
        let layout = if has_flash {
            PackedLayout::Sequences(Sequences::new(device, &order)?)
        } else {
            let mut rows = Vec::with_capacity(order.len());
            let mut start = 0;
            for siblings in &order {
                rows.push(SiblingRows::new(device, start, siblings)?);
                start += siblings.num_tokens();
            }
            PackedLayout::Rows(rows)
        };
        Ok(Self {
            tokens: upload(&flat, device)?.f_unsqueeze(0)?,
            positions: upload(&positions, device)?,
            places,
            layout,
        })
    }

    /// Converts keys and values of a flat list without completions to those of `prompts`, one after the
    /// other.
    pub(crate) fn keys_of_prompts(
        &self,
        prompts: &[&[u32]],
        mut keys_and_values: PromptKeys,
    ) -> Result<PromptKeys> {
        let Places { prefix, prompt_ends, .. } = &self.places;
        if *prefix == 0 {
            return Ok(keys_and_values);
        }
        let mut token_index = Vec::new();
        for (prompt, &prompt_end) in prompts.iter().zip(prompt_ends) {
            let rest = prompt.len() as i64 - prefix;
            token_index.extend(0..*prefix);
            token_index.extend(prompt_end + 1 - rest..=prompt_end);
        }
        let index = upload(&token_index, self.tokens.device())?;
        for (keys, values) in &mut keys_and_values {
            *keys = keys.f_index_select(0, &index)?;
            *values = values.f_index_select(0, &index)?;
        }
        Ok(keys_and_values)
    }
}

/// Returns the length of the prefix that all prompts share, without the last token of any, if it is
/// worth sharing; else 0.
fn shared_prefix(groups: &[Group<'_>]) -> usize {
    let [(first, _), others @ ..] = groups else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let mut shared = first.len() - 1;
    for (other, _) in others {
        let equal = first.iter().zip(*other).take_while(|(a, b)| a == b).count();
        shared = shared.min(equal).min(other.len() - 1);
    }
    if shared < MIN_PREFIX { 0 } else { shared }
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

    /// Prompts after `prefix`, with completions.
    fn prompts_after(prefix: &[u32]) -> Vec<(Vec<u32>, Vec<Vec<u32>>)> {
        let groups = [
            (vec![1, 2, 3], vec![vec![4, 5, 6, 7], vec![], vec![8]]),
            (vec![9], vec![vec![], vec![]]),
            (vec![10, 11, 12, 13], vec![vec![4, 5], vec![6, 7]]),
            (vec![14, 15], vec![]),
        ];
        groups.map(|(rest, completions)| ([prefix, &rest].concat(), completions)).to_vec()
    }

    fn as_groups(owned: &[(Vec<u32>, Vec<Vec<u32>>)]) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (prompt, completions) in owned {
            groups.push((prompt, completions.iter().map(Vec::as_slice).collect()));
        }
        groups
    }

    const PREFIX: [u32; MIN_PREFIX] = [7; MIN_PREFIX];

    #[test]
    fn packed_hidden_states_match_separate_sequences() {
        for (family, prefix) in ["llama", "qwen2", "qwen3", "olmo2"]
            .into_iter()
            .flat_map(|family| [(family, &[][..]), (family, &PREFIX)])
        {
            let model = tiny(family, 1);
            let owned = prompts_after(prefix);
            let groups = as_groups(&owned);
            let packed = pack(&model, &groups).unwrap();
            assert_eq!(packed.places.prefix, prefix.len() as i64);
            let hidden = model.hidden_packed(&packed).unwrap();
            let same = |got_start: i64, whole: &Tensor, start: i64, tokens: i64| {
                let expected = whole.select(0, 0).narrow(0, start, tokens);
                let difference = (hidden.narrow(0, got_start, tokens) - expected).abs();
                assert!(difference.sum(Kind::Float).double_value(&[]) < 1e-4, "{family}");
            };
            let whole = |tokens: &[u32]| model.hidden(&model.batch(&[tokens]).unwrap()).unwrap();
            let mut num_tokens = prefix.len();
            for (n, (prompt, completions)) in groups.iter().enumerate() {
                let rest = (prompt.len() - prefix.len()) as i64;
                let prompt_length = prompt.len() as i64;
                num_tokens += prompt.len() - prefix.len();
                let rest_start = packed.places.prompt_ends[n] + 1 - rest;
                same(rest_start, &whole(prompt), prompt_length - rest, rest);
                same(0, &whole(prompt), 0, prefix.len() as i64);
                let mut start = packed.places.completion_starts[n];
                for completion in completions {
                    let tokens = completion.len() as i64;
                    same(start, &whole(&[*prompt, *completion].concat()), prompt_length, tokens);
                    start += tokens;
                    num_tokens += completion.len();
                }
            }
            assert_eq!(num_tokens as i64, hidden.size()[0], "each token once");
        }
    }

    #[test]
    fn shared_prefix_leaves_a_token_of_each_prompt() {
        let long = [7; 20];
        let shared = |prompts: &[&[u32]]| {
            let groups: Vec<Group<'_>> = prompts.iter().map(|&prompt| (prompt, vec![])).collect();
            shared_prefix(&groups)
        };
        assert_eq!(shared(&[]), 0);
        assert_eq!(shared(&[&long]), 0, "a single prompt");
        assert_eq!(shared(&[&long, &long]), 19);
        assert_eq!(shared(&[&long, &long[..18], &long]), 17);
        assert_eq!(shared(&[&long, &long[..16]]), 0, "a short prefix");
        assert_eq!(shared(&[&long, &[8; 20]]), 0);
    }

    #[test]
    fn keys_and_logits_of_prompts_with_a_shared_prefix_are_those_of_single_prompts() {
        let difference = |a: &Tensor, b: &Tensor| {
            assert_eq!(a.size(), b.size());
            (a - b).abs().max().double_value(&[])
        };
        let owned = prompts_after(&PREFIX);
        let prompts: Vec<&[u32]> = owned.iter().map(|(prompt, _)| prompt.as_slice()).collect();
        for family in ["llama", "qwen2", "qwen3", "olmo2"] {
            let model = tiny(family, 4);
            let (keys, logits) = model.prefill(&prompts).unwrap();
            let mut start = 0;
            for (n, prompt) in prompts.iter().enumerate() {
                let (single_keys, single_logits) = model.prefill(&[prompt]).unwrap();
                assert!(difference(&logits.get(n as i64), &single_logits.get(0)) < 1e-4);
                for ((k, v), (single_k, single_v)) in keys.iter().zip(&single_keys) {
                    let own = |x: &Tensor| x.narrow(0, start, prompt.len() as i64);
                    assert!(difference(&own(k), single_k) < 1e-4, "{family}, prompt {n}");
                    assert!(difference(&own(v), single_v) < 1e-4, "{family}, prompt {n}");
                }
                start += prompt.len() as i64;
            }
            assert_eq!(start, keys[0].0.size()[0]);
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
        for prefix in [&[][..], &PREFIX] {
            compare_layouts(&as_groups(&prompts_after(prefix)), prefix.len() as i32);
        }
    }

    fn compare_layouts(groups: &[Group<'_>], prefix: i32) {
        let model = tiny("llama", 1); // 4 heads, 2 of keys, 4 dimensions
        let packed = pack(&model, groups).unwrap();
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
        let (_, order) = arrange(groups, prefix as usize);
        let sequences = Sequences::new(Device::Cpu, &order).unwrap();
        assert_eq!(sequences.query_starts.longest, i64::from(prefix.max(4)));
        assert_eq!(sequences.key_starts.longest, i64::from(prefix + 7));
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
