//! Probabilities of pairs of texts.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::onnx::{DynValue, RunResult, RuntimeLibrary, Tensor, session, tensor};
use corver_core::{BoxError, Entailment, NliModel, NliPair};

use crate::nli::config::ClassLabels;
use crate::nli::encode::Encoded;
use crate::nli::error::run_error;
use crate::nli::folder::{self, LoadedNli};
use crate::nli::{NliError, NliSettings, Result};

/// A model for natural language inference.
///
/// An answer does not depend on the other pairs of its batch, except for rounding.
pub struct Nli {
    model: LoadedNli,
    batch_size: usize,
}

impl Nli {
    /// Opens the folder of HHEM-2.1 or of a DeBERTa-v3. `settings.model` is ignored.
    ///
    /// # Errors
    /// Fails if the folder is incomplete, inconsistent or has another model, or the device or
    /// library cannot be used.
    pub fn open(folder: &Path, settings: &NliSettings, runtime: &RuntimeLibrary) -> Result<Self> {
        let model = folder::open(folder, settings, runtime)?;
        Ok(Self { model, batch_size: settings.batch_size })
    }

    /// Returns the answer to each pair, in order. Equal pairs are computed once.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot encode a text, or the graph fails.
    pub fn answers(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>> {
        let mut numbers = HashMap::new();
        let mut rows: Vec<(usize, Encoded)> = Vec::new();
        let mut number_of = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let next = numbers.len();
            let number = *numbers.entry(pair).or_insert(next);
            if number == next {
                rows.push((number, self.model.encoder.encode(pair)?));
            }
            number_of.push(number);
        }
        let cut = rows.iter().filter(|(_, row)| row.is_cut).count();
        if cut > 0 {
            tracing::warn!(
                cut,
                of = rows.len(),
                "pairs are longer than backends.nli.max_tokens and were cut"
            );
        }
        // Longest first: if memory is short, the first batch fails.
        rows.sort_by_key(|(_, row)| Reverse(row.ids.len()));
        let lengths: Vec<usize> = rows.iter().map(|(_, row)| row.ids.len()).collect();
        let mut answers = HashMap::with_capacity(rows.len());
        for batch in batches(&lengths, self.batch_size, self.model.max_batch_tokens) {
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
        let labels = self.model.labels;
        let logits = self
            .logits(rows, columns)
            .and_then(|logits| tensor::first_of_rows(&logits))
            .map_err(|source| run_error(rows.len(), columns, source))?;
        logits
            .chunks_exact(labels.count)
            .map(|logits| labels.answer(logits).ok_or(NliError::NotFinite))
            .collect()
    }

    /// Returns the logits, `[B, C]` or `[B, N, C]`, of rows that are padded on the right.
    fn logits(&mut self, rows: &[&[u32]], columns: usize) -> RunResult<DynValue> {
        let shape = [rows.len(), columns];
        let mut ids = Vec::with_capacity(rows.len() * columns);
        let mut mask = Vec::with_capacity(rows.len() * columns);
        for row in rows {
            let padding = columns - row.len();
            ids.extend(row.iter().map(|&id| i64::from(id)));
            ids.extend(std::iter::repeat_n(0, padding));
            mask.extend(std::iter::repeat_n(1_i64, row.len()));
            mask.extend(std::iter::repeat_n(0, padding));
        }
        let mut binding = self.model.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array((shape, ids))?)?;
        binding.bind_input("attention_mask", &Tensor::from_array((shape, mask))?)?;
        binding.bind_output_to_device("logits", &session::output_memory(None)?)?;
        let mut outputs = self.model.session.run_binding(&binding)?;
        Ok(outputs.remove("logits").expect("it was bound by this name"))
    }
}

impl NliModel for Nli {
    fn entail(&mut self, pairs: &[NliPair]) -> std::result::Result<Vec<Entailment>, BoxError> {
        Ok(self.answers(pairs)?)
    }
}

impl ClassLabels {
    /// Returns the softmax of the logits by class. `None`: it is not finite.
    fn answer(&self, logits: &[f32]) -> Option<Entailment> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        sum.is_finite().then(|| Entailment {
            entail: weights[self.entail] / sum,
            neutral: self.neutral.map(|class| weights[class] / sum),
            contradict: self.contradict.map(|class| weights[class] / sum),
        })
    }
}

/// Returns the ranges of rows that are run together. `lengths` descend.
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
        let labels = ClassLabels { count: 3, entail: 2, neutral: Some(0), contradict: Some(1) };
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
