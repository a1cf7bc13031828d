//! The first pass over the prompts that are decoded together.

use tch::Tensor;

use crate::device::upload;
use crate::error::Result;
use crate::packed::Group;
use crate::prompts::PromptKeys;

/// Shortest prefix that is shared, tokens. A shorter one saves less than copying its keys costs.
const MIN_SHARED: usize = 16;

/// Layout of prompts in one flat list of tokens: one after the other, or the prefix that all share and
/// then the rest of each.
pub(crate) struct Prefill<'a> {
    pub(crate) groups: Vec<Group<'a>>,
    /// `[Q]`, index in the flat list of each prompt's last token.
    pub(crate) ends: Vec<i64>,
    /// `[ΣP]`, index in the flat list of each prompt's tokens; `None` if they are the flat list.
    token_index: Option<Vec<i64>>,
}

impl<'a> Prefill<'a> {
    pub(crate) fn new(prompts: &[&'a [u32]]) -> Self {
        let shared = shared_prefix(prompts);
        if shared < MIN_SHARED {
            let mut ends = Vec::with_capacity(prompts.len());
            let mut end = 0;
            for prompt in prompts {
                end += prompt.len() as i64;
                ends.push(end - 1);
            }
            let groups = prompts.iter().map(|&prompt| (prompt, Vec::new())).collect();
            return Self { groups, ends, token_index: None };
        }
        let mut rests = Vec::with_capacity(prompts.len());
        let mut ends = Vec::with_capacity(prompts.len());
        let mut token_index = Vec::new();
        let mut end = shared as i64;
        for prompt in prompts {
            let rest = &prompt[shared..];
            let start = end;
            end += rest.len() as i64;
            rests.push(rest);
            ends.push(end - 1);
            token_index.extend(0..shared as i64);
            token_index.extend(start..end);
        }
        let groups = vec![(&prompts[0][..shared], rests)];
        Self { groups, ends, token_index: Some(token_index) }
    }

    /// Converts the keys and values of the flat list to those of each prompt, one after the other.
    pub(crate) fn keys_of_prompts(&self, mut flat: PromptKeys) -> Result<PromptKeys> {
        if let (Some(token_index), Some((keys, _))) = (&self.token_index, flat.first()) {
            let index = upload(token_index, keys.device())?;
            for (keys, values) in &mut flat {
                *keys = keys.f_index_select(0, &index)?;
                *values = values.f_index_select(0, &index)?;
            }
        }
        Ok(flat)
    }
}

/// Returns the length of the longest prefix that all prompts share, without the last token of any; 0
/// for a single prompt.
fn shared_prefix(prompts: &[&[u32]]) -> usize {
    let [first, others @ ..] = prompts else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let mut shared = first.len().saturating_sub(1);
    for other in others {
        let equal = first.iter().zip(*other).take_while(|(a, b)| a == b).count();
        shared = shared.min(equal).min(other.len().saturating_sub(1));
    }
    shared
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;
    use crate::testing::tiny;

    #[test]
    fn shared_prefix_leaves_a_token_of_each_prompt() {
        assert_eq!(shared_prefix(&[]), 0);
        assert_eq!(shared_prefix(&[&[1, 2, 3]]), 0);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2, 4]]), 2);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2, 3]]), 2);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2], &[1, 2, 3, 4]]), 1);
        assert_eq!(shared_prefix(&[&[1, 2], &[]]), 0);
    }

    /// Largest difference between two tensors of one shape.
    fn difference(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.size(), b.size());
        (a - b).abs().max().to_kind(Kind::Double).double_value(&[])
    }

    #[test]
    fn prompts_with_a_shared_prefix_have_the_keys_and_logits_of_single_ones() {
        let prefix: Vec<u32> = (1..=MIN_SHARED as u32).collect();
        let prompts =
            [&[3, 4, 5][..], &[9], &[3, 4, 5, 6, 7]].map(|rest| [&prefix[..], rest].concat());
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        for family in ["llama", "qwen2", "qwen3", "olmo2"] {
            let model = tiny(family, 4);
            let (keys, logits) = model.prefill(&prompts).unwrap();
            let mut start = 0;
            for (n, prompt) in prompts.iter().enumerate() {
                let (single_keys, single_logits) = model.prefill(&[prompt]).unwrap();
                assert!(
                    difference(&logits.get(n as i64), &single_logits.get(0)) < 1e-4,
                    "{family}"
                );
                for ((k, v), (single_k, single_v)) in keys.iter().zip(&single_keys) {
                    let own = |x: &Tensor| x.narrow(0, start, prompt.len() as i64);
                    assert!(difference(&own(k), single_k) < 1e-4, "{family}, prompt {n}");
                    assert!(difference(&own(v), single_v) < 1e-4, "{family}, prompt {n}");
                }
                start += prompt.len() as i64;
            }
        }
    }

    #[test]
    fn pass_over_a_shared_prefix_has_each_token_once() {
        let prefix = [7; MIN_SHARED];
        let prompts = [[&prefix[..], &[1]].concat(), [&prefix[..], &[2, 3]].concat()];
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let [(first, rests)] = &Prefill::new(&prompts).groups[..] else { panic!("one group") };
        assert_eq!((first.len(), rests.len()), (MIN_SHARED, 2));
        assert_eq!(Prefill::new(&prompts[..1]).groups.len(), 1);
        assert_eq!(Prefill::new(&[&prefix[1..], &prefix[..]]).groups.len(), 2, "a short prefix");
    }
}
