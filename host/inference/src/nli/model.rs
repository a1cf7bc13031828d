//! Pairs of texts ─▶ what the second is to the first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::onnx::{DynValue, RunResult, RuntimeLibrary, Tensor, session, tensor};
use corver_core::{BoxError, Entailment, NliModel, NliPair};

use crate::nli::config::Labels;
use crate::nli::encode::Encoded;
use crate::nli::folder::{self, Opened};
use crate::nli::{NliError, NliSettings, Result};

/// A model for natural language inference, ready to answer.
///
/// An answer does not depend on the pairs that are computed beside it, but for rounding.
pub struct Nli {
    opened: Opened,
    batch_size: usize,
}

impl Nli {
    /// Opens the folder of HHEM-2.1 or of a DeBERTa-v3; `settings.model` is not looked at.
    ///
    /// # Errors
    /// A folder that is incomplete, does not fit together or holds another model; a device or
    /// library that cannot be used.
    pub fn open(folder: &Path, settings: &NliSettings, runtime: &RuntimeLibrary) -> Result<Self> {
        let opened = folder::open(folder, settings, runtime)?;
        Ok(Self { opened, batch_size: settings.batch_size })
    }

    /// One answer per pair, in order. Equal pairs are computed once.
    ///
    /// # Errors
    /// Where the tokenizer refuses a text or the graph fails.
    pub fn answers(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>> {
        let mut numbers = HashMap::new();
        let mut rows: Vec<(usize, Encoded)> = Vec::new();
        let mut number_of = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let next = numbers.len();
            let number = *numbers.entry(pair).or_insert(next);
            if number == next {
                rows.push((number, self.opened.encoder.encode(pair)?));
            }
            number_of.push(number);
        }
        let cut = rows.iter().filter(|(_, row)| row.is_cut).count();
        if cut > 0 {
            tracing::warn!(
                cut,
                of = rows.len(),
                "pairs are longer than verify.nli.max_tokens and were cut"
            );
        }
        // The longest first: where memory is short, it shows at once.
        rows.sort_by_key(|(_, row)| Reverse(row.ids.len()));
        let lengths: Vec<usize> = rows.iter().map(|(_, row)| row.ids.len()).collect();
        let mut answers = HashMap::with_capacity(rows.len());
        for batch in batches(&lengths, self.batch_size, self.opened.max_batch_tokens) {
            let rows = &rows[batch];
            let ids: Vec<&[u32]> = rows.iter().map(|(_, row)| row.ids.as_slice()).collect();
            for ((number, _), answer) in rows.iter().zip(self.run(&ids)?) {
                answers.insert(*number, answer);
            }
        }
        Ok(number_of.iter().map(|number| answers[number]).collect())
    }

    fn run(&mut self, rows: &[&[u32]]) -> Result<Vec<Entailment>> {
        let columns = rows.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let labels = self.opened.labels;
        let logits = self
            .logits(rows, columns)
            .and_then(|logits| tensor::first_of_rows(&logits))
            .map_err(|source| NliError::Run { rows: rows.len(), columns, source })?;
        logits
            .chunks_exact(labels.count)
            .map(|logits| labels.answer(logits).ok_or(NliError::NotFinite))
            .collect()
    }

    /// `[B, C]` or `[B, N, C]`, of rows that are padded on the right.
    fn logits(&mut self, rows: &[&[u32]], columns: usize) -> RunResult<DynValue> {
        let shape = [rows.len(), columns];
        let padded = |ids: &[u32]| {
            let padding = std::iter::repeat_n(0, columns - ids.len());
            ids.iter().map(|&id| i64::from(id)).chain(padding).collect::<Vec<_>>()
        };
        let ids: Vec<i64> = rows.iter().flat_map(|ids| padded(ids)).collect();
        let mask: Vec<i64> =
            rows.iter().flat_map(|row| (0..columns).map(|n| i64::from(n < row.len()))).collect();
        let mut binding = self.opened.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array((shape, ids))?)?;
        binding.bind_input("attention_mask", &Tensor::from_array((shape, mask))?)?;
        binding.bind_output_to_device("logits", &session::home(None)?)?;
        let mut outputs = self.opened.session.run_binding(&binding)?;
        Ok(outputs.remove("logits").expect("it was bound by this name"))
    }
}

impl NliModel for Nli {
    fn entail(&mut self, pairs: &[NliPair]) -> std::result::Result<Vec<Entailment>, BoxError> {
        Ok(self.answers(pairs)?)
    }
}

impl Labels {
    /// Softmax; `None` where it is no number.
    fn answer(&self, logits: &[f32]) -> Option<Entailment> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        let class = |n: usize| weights[n] / sum;
        let answer = Entailment {
            entail: class(self.entail),
            neutral: self.neutral.map(class),
            contradict: self.contradict.map(class),
        };
        sum.is_finite().then_some(answer)
    }
}

/// Ranges of `lengths`, which fall: rows that are run together.
fn batches(lengths: &[usize], batch_size: usize, max_batch_tokens: usize) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let mut start = 0;
    while let Some(longest) = lengths.get(start) {
        let rows = (max_batch_tokens / longest.max(&1)).clamp(1, batch_size);
        let end = (start + rows).min(lengths.len());
        batches.push(start..end);
        start = end;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_in_rows_and_tokens() {
        assert_eq!(batches(&[900, 500, 100, 100, 10, 10, 10], 3, 600), [0..1, 1..2, 2..5, 5..7]);
        assert!(batches(&[], 3, 600).is_empty());
    }

    #[test]
    fn answers_are_probabilities_by_label() {
        let labels = Labels { count: 3, entail: 2, neutral: Some(0), contradict: Some(1) };
        let answer = labels.answer(&[0.0, 2f32.ln(), 5f32.ln()]).unwrap();
        let Entailment { entail, neutral: Some(neutral), contradict: Some(contradict) } = answer
        else {
            panic!()
        };
        for (got, expected) in [(entail, 0.625), (neutral, 0.125), (contradict, 0.25)] {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
        assert_eq!(labels.answer(&[0.0, f32::NAN, 1.0]), None);
        assert_eq!(labels.answer(&[0.0, 1.0, f32::INFINITY]), None);
    }
}
