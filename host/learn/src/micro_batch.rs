//! Micro-batches: the rows of a step that go through one forward and backward pass.

use std::cmp::Reverse;
use std::ops::Range;

use corver_core::Rollout;
use tch::Tensor;

use crate::device::upload;
use crate::error::Result;
use crate::model::Model;
use crate::packed::Packed;
use crate::scores::log_probs;

/// One rollout and its prompt.
#[derive(Clone, Copy)]
pub(crate) struct TrainingRow<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) rollout: &'a Rollout,
}

/// Size of a pass that fits the memory.
#[derive(Clone, Copy)]
pub(crate) struct PassLimit {
    /// Most tokens.
    pub(crate) tokens: usize,
    /// Part of a token that a copied key counts as; 0 or more.
    pub(crate) key_share: f64,
}

impl PassLimit {
    /// Returns true if a pass of `tokens` tokens that copies `keys` keys fits.
    fn allows(self, tokens: usize, keys: usize) -> bool {
        tokens as f64 + keys as f64 * self.key_share <= self.tokens as f64
    }
}

/// Splits the rows of `range` into lists of row numbers, one per micro-batch.
///
/// Rows of one question are adjacent, the longest first. A list has at most `limit.tokens` tokens, but
/// at least one row, or one question if `whole_questions` is set. A prompt counts once per list, also
/// if it shares a prefix with others, and
/// its keys once more per row. Rows without tokens have no gradient and are in no list.
pub(crate) fn split_rows(
    rows: &[TrainingRow<'_>],
    range: Range<usize>,
    limit: PassLimit,
    whole_questions: bool,
) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = range.filter(|&n| !rows[n].rollout.tokens.is_empty()).collect();
    order.sort_by_key(|&n| (rows[n].rollout.question, Reverse(rows[n].rollout.tokens.len())));
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    let mut keys = 0;
    let mut last_question = None;
    for unit in order
        .chunk_by(|&a, &b| whole_questions && rows[a].rollout.question == rows[b].rollout.question)
    {
        let TrainingRow { prompt, rollout } = rows[unit[0]];
        let unit_tokens: usize = unit.iter().map(|&n| rows[n].rollout.tokens.len()).sum();
        let unit_keys = unit.len() * prompt.len() + unit_tokens;
        let shares_prompt = last_question == Some(rollout.question);
        let new_prompt = if shares_prompt { 0 } else { prompt.len() };
        let all_tokens = tokens + new_prompt + unit_tokens;
        let all_keys = keys + new_prompt + unit_keys;
        match parts.last_mut() {
            Some(part) if limit.allows(all_tokens, all_keys) => {
                tokens = all_tokens;
                keys = all_keys;
                part.extend(unit);
            }
            _ => {
                tokens = prompt.len() + unit_tokens;
                keys = prompt.len() + unit_keys;
                parts.push(unit.to_vec());
            }
        }
        last_question = Some(rollout.question);
    }
    parts
}

/// The tensors of one micro-batch, whose n completion tokens form one flat list.
pub(crate) struct MicroBatch {
    /// Numbers of its rows in the step.
    pub(crate) members: Vec<usize>,
    /// Prompts, and completions without their last tokens.
    pub(crate) packed: Packed,
    /// `[n]` i64, index in `packed` of the hidden state that predicts each token.
    pub(crate) hidden_index: Tensor,
    /// `[n]` i64, ids of the completion tokens.
    pub(crate) targets: Tensor,
    /// `[n]` f32, log-probabilities before the first iteration; `None` until they are computed.
    pub(crate) old: Option<Tensor>,
    /// True if a report contains the mismatch between sampler and policy already.
    pub(crate) is_mismatch_reported: bool,
    /// `[n]` f32, log-probabilities under the reference; `None` if the loss does not use them.
    pub(crate) reference: Option<Tensor>,
    /// `[n]` f32, the critic's values before the update; `None` without a critic.
    pub(crate) values: Option<Tensor>,
    /// `[n]` f32, log-probabilities under the sampler.
    pub(crate) sampled: Tensor,
    /// `[n]` f32, weight of each token in the loss.
    pub(crate) weights: Tensor,
    /// `[n]` i64, index in `members` of each token's row.
    pub(crate) rows: Tensor,
    /// `[n]` i64, number of each token's question in this micro-batch.
    pub(crate) questions: Tensor,
    /// Number of distinct questions.
    pub(crate) num_questions: usize,
    /// `[B]` i64, tokens of each row.
    pub(crate) lengths: Tensor,
}

impl MicroBatch {
    /// Uploads the rows `members` of the step. `row_weights` has an entry for each row of the step.
    pub(crate) fn new(
        model: &Model,
        step_rows: &[TrainingRow<'_>],
        row_weights: &[f64],
        members: Vec<usize>,
    ) -> Result<Self> {
        let mut groups: Vec<(&[u32], Vec<&[u32]>)> = Vec::new();
        let mut hidden_index = Vec::new();
        let mut targets = Vec::new();
        let mut sampled = Vec::new();
        let mut weights = Vec::new();
        let mut rows = Vec::new();
        let mut questions = Vec::new();
        let mut lengths = Vec::new();
        let mut last_question = None;
        for (n, &member) in members.iter().enumerate() {
            let TrainingRow { prompt, rollout } = step_rows[member];
            if last_question != Some(rollout.question) {
                last_question = Some(rollout.question);
                groups.push((prompt, Vec::new()));
            }
            if let Some((_, completions)) = groups.last_mut() {
                // No target follows the last token, so the pass does not need it.
                completions.push(&rollout.tokens[..rollout.tokens.len() - 1]);
            }
            targets.extend(rollout.tokens.iter().map(|&id| i64::from(id)));
            sampled.extend_from_slice(&rollout.log_probs);
            weights.resize(targets.len(), row_weights[member] as f32);
            rows.resize(targets.len(), n as i64);
            questions.resize(targets.len(), groups.len() as i64 - 1);
            lengths.push(rollout.tokens.len() as i64);
        }
        let device = model.device();
        let packed = Packed::new(model.config(), model.kind(), device, &groups)?;
        for (n, (_, completions)) in groups.iter().enumerate() {
            let mut start = packed.places.completion_starts[n];
            for completion in completions {
                let end = start + completion.len() as i64;
                hidden_index.push(packed.places.prompt_ends[n]);
                hidden_index.extend(start..end);
                start = end;
            }
        }
        Ok(Self {
            packed,
            hidden_index: upload(&hidden_index, device)?,
            targets: upload(&targets, device)?,
            old: None,
            is_mismatch_reported: false,
            reference: None,
            values: None,
            sampled: upload(&sampled, device)?,
            weights: upload(&weights, device)?,
            rows: upload(&rows, device)?,
            questions: upload(&questions, device)?,
            num_questions: groups.len(),
            lengths: upload(&lengths, device)?,
            members,
        })
    }

    /// Returns the number of tokens of the pass.
    pub(crate) fn num_tokens(&self) -> i64 {
        self.packed.tokens.size()[1]
    }

    /// Splits the rows in two halves, which have together the same gradient. `step_rows` and
    /// `row_weights` are those of [`MicroBatch::new`]. Returns `None` if there is one row or, with
    /// `whole_questions`, one question.
    pub(crate) fn halves(
        &self,
        model: &Model,
        step_rows: &[TrainingRow<'_>],
        row_weights: &[f64],
        whole_questions: bool,
    ) -> Result<Option<[Self; 2]>> {
        let question = |n: usize| step_rows[self.members[n]].rollout.question;
        let half = self.members.len() / 2;
        let middle = (1..self.members.len())
            .filter(|&n| !whole_questions || question(n - 1) != question(n))
            .min_by_key(|n| n.abs_diff(half));
        let Some(middle) = middle else { return Ok(None) };
        let (first, second) = self.members.split_at(middle);
        let mut first = Self::new(model, step_rows, row_weights, first.to_vec())?;
        let mut second = Self::new(model, step_rows, row_weights, second.to_vec())?;
        let mut start = 0;
        for part in [&mut first, &mut second] {
            let tokens = part.targets.size()[0];
            let narrow = |x: &Option<Tensor>| -> Result<Option<Tensor>> {
                Ok(x.as_ref().map(|x| x.f_narrow(0, start, tokens)).transpose()?)
            };
            part.old = narrow(&self.old)?;
            part.reference = narrow(&self.reference)?;
            part.values = narrow(&self.values)?;
            part.is_mismatch_reported = self.is_mismatch_reported;
            start += tokens;
        }
        Ok(Some([first, second]))
    }

    /// Returns the hidden states `[n, D]` that predict the completion tokens.
    pub(crate) fn hidden(&self, model: &Model) -> Result<Tensor> {
        Ok(model.hidden_packed(&self.packed)?.f_index_select(0, &self.hidden_index)?)
    }

    /// Computes the reference's log-probabilities. The model's adapters must be off.
    pub(crate) fn set_reference(&mut self, model: &Model, temperature: f64) -> Result<()> {
        let _guard = tch::no_grad_guard();
        let hidden = self.hidden(model)?;
        self.reference = Some(log_probs(model, &hidden, &self.targets, temperature)?);
        Ok(())
    }

    /// Computes the log-probabilities that later updates of the step compare with.
    pub(crate) fn set_old_log_probs(&mut self, model: &Model, temperature: f64) -> Result<()> {
        let _guard = tch::no_grad_guard();
        let hidden = self.hidden(model)?;
        self.old = Some(log_probs(model, &hidden, &self.targets, temperature)?);
        Ok(())
    }

    /// Returns `[n]` f32 from one list of token values for each row of the step.
    pub(crate) fn token_values(&self, step_rows: &[Vec<f64>], model: &Model) -> Result<Tensor> {
        let mut flat = Vec::new();
        for &member in &self.members {
            flat.extend(step_rows[member].iter().map(|&value| value as f32));
        }
        upload(&flat, model.device())
    }

    /// Returns `[n]` f32 from one value for each row of the step.
    pub(crate) fn row_values(&self, step_rows: &[f64], model: &Model) -> Result<Tensor> {
        let values: Vec<f32> =
            self.members.iter().map(|&member| step_rows[member] as f32).collect();
        Ok(upload(&values, model.device())?.f_index_select(0, &self.rows)?)
    }
}
