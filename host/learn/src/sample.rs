//! Sampling: every prompt is run once, and a prefix that all prompts share once for all. The samples of
//! a prompt share its keys and values, and all rows are decoded together. Finished rows leave the batch.
//!
//! Each row draws from its own random stream, named by seed, prompt and sample. A row's draws depend
//! neither on the other rows nor on when they end. (The logits do, in their last bits: matrix
//! products round differently at different batch sizes. The same call gives the same result.)

use std::ops::ControlFlow;

use corver_core::{Decoding, Sampling};
use tch::{Device, Tensor};

use crate::cache::KvCache;
use crate::device::upload;
use crate::draw::draw_tokens;
use crate::error::{LearnError, Result};
use crate::files;
use crate::model::Model;
use crate::random::RandomStream;

/// One sampled completion as token ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampledCompletion {
    /// `[T]` token ids, including the stop token.
    pub tokens: Vec<u32>,
    /// `[T]` nats, at least −87.4: log-softmax of the logits divided by the temperature (1 if
    /// decoding is greedy), over the whole vocabulary, before top-k and top-p. The loss
    /// differentiates the same log-probabilities.
    pub log_probs: Vec<f32>,
    /// True if a stop token or text ended it; false at the length limit.
    pub finished: bool,
}

/// Default for the rows that are decoded together. It bounds the memory of a call with many prompts.
pub const MAX_ROWS: usize = 512;

/// Callback that sampling calls every few tokens. `Break` stops with [`LearnError::Stopped`].
pub type Watch<'w> = dyn FnMut(Decoding) -> ControlFlow<()> + 'w;

/// Stop condition and callbacks of a sampling call. An error of one of them ends the call.
pub struct SampleHooks<'s> {
    /// Most rows that are decoded together; the rows of one prompt always are.
    pub max_rows: usize,
    /// Most prompts whose rows are decoded together.
    pub max_prompts: usize,
    /// Returns true if a completion with these tokens is finished.
    pub is_finished: &'s dyn Fn(&[u32]) -> Result<bool>,
    /// Progress callback; can stop the call.
    pub watch: &'s mut Watch<'s>,
    /// Receives each completion soon after its last token, with its index among all.
    pub on_finished: &'s mut dyn FnMut(usize, SampledCompletion) -> Result<()>,
}

/// Samples `sampling.num_generations` completions for each prompt. Those of one prompt are adjacent,
/// in prompt order. A completion ends with the first of the `stop` tokens.
///
/// # Errors
/// Fails if a setting is out of range, a prompt is empty or too long, or the device fails.
pub fn sample(
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    stop: &[u32],
    seed: u64,
) -> Result<Vec<SampledCompletion>> {
    let mut completions =
        vec![SampledCompletion::default(); prompts.len() * sampling.num_generations];
    let hooks = SampleHooks {
        max_rows: MAX_ROWS,
        max_prompts: MAX_ROWS,
        is_finished: &|tokens| Ok(tokens.last().is_some_and(|last| stop.contains(last))),
        watch: &mut |_| ControlFlow::Continue(()),
        on_finished: &mut |index, completion| {
            completions[index] = completion;
            Ok(())
        },
    };
    sample_with(hooks, model, prompts, sampling, seed)?;
    Ok(completions)
}

/// Samples like [`sample`], and passes each completion to `hooks.on_finished`.
///
/// # Errors
/// Fails as [`sample`], or with the error of a hook.
pub fn sample_with(
    mut hooks: SampleHooks<'_>,
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    seed: u64,
) -> Result<()> {
    if let Some(problem) = corver_settings::check("rollout", sampling).into_iter().next() {
        return Err(problem.into());
    }
    let _guard = tch::no_grad_guard();
    let chunk_size = (hooks.max_rows / sampling.num_generations).min(hooks.max_prompts).max(1);
    for (part, chunk) in prompts.chunks(chunk_size).enumerate() {
        let mut rows = Vec::with_capacity(chunk.len() * sampling.num_generations);
        for (n, prompt) in chunk.iter().enumerate() {
            let room = model.config().max_positions.saturating_sub(prompt.len());
            let max_tokens = sampling.max_completion_length.min(room);
            let question = part * chunk_size + n;
            for generation in 0..sampling.num_generations {
                let stream = [question as u64, generation as u64];
                rows.push(DecodingRow {
                    index: question * sampling.num_generations + generation,
                    prompt: n,
                    max_tokens,
                    draws: RandomStream::new(seed, "sample", &stream),
                    open: Some(SampledCompletion::default()),
                });
            }
        }
        decode(model, chunk, sampling, &mut rows, &mut hooks)?;
    }
    Ok(())
}

/// One row of the batch that is decoded.
struct DecodingRow {
    /// Index among all completions of the call.
    index: usize,
    /// Index among the prompts that are decoded together.
    prompt: usize,
    max_tokens: usize,
    draws: RandomStream,
    /// The completion so far; `None` when it is finished.
    open: Option<SampledCompletion>,
}

impl DecodingRow {
    fn push(&mut self, token: u32, log_prob: f32, hooks: &mut SampleHooks<'_>) -> Result<()> {
        if let Some(completion) = &mut self.open {
            completion.tokens.push(token);
            completion.log_probs.push(log_prob);
            completion.finished = (hooks.is_finished)(&completion.tokens)?;
        }
        self.close_if_done(hooks)
    }

    /// Passes the completion on if no token follows.
    fn close_if_done(&mut self, hooks: &mut SampleHooks<'_>) -> Result<()> {
        let max_tokens = self.max_tokens;
        match self.open.take_if(|row| row.finished || row.tokens.len() >= max_tokens) {
            Some(completion) => (hooks.on_finished)(self.index, completion),
            None => Ok(()),
        }
    }
}

/// Tokens by which the cache grows; a multiple of every burst.
const CACHE_BLOCK: usize = 64;

/// Returns the number of tokens decoded between two downloads of the results.
///
/// A download waits for the GPU, so it should be rare there. On the CPU it costs nothing, while a
/// finished row that stays in the batch costs a row of work.
fn burst_length(device: Device) -> usize {
    if device.is_cuda() { 16 } else { 4 }
}

fn decode(
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    rows: &mut [DecodingRow],
    hooks: &mut SampleHooks<'_>,
) -> Result<()> {
    let device = model.device();
    for row in rows.iter_mut() {
        row.close_if_done(hooks)?; // a prompt may leave no room for a token
    }
    // Index in `rows` of each row of the cache.
    let mut open: Vec<usize> = (0..rows.len()).filter(|&r| rows[r].open.is_some()).collect();
    if open.is_empty() {
        return Ok(());
    }
    let _frozen = model.freeze_adapters()?;
    let (keys, first_logits) = model.prefill(prompts)?;
    // One check per batch is enough: these logits depend on every weight and every operation.
    if !files::is_finite(&first_logits)? {
        return Err(LearnError::Logits);
    }
    let mut rows_per_prompt = vec![0; prompts.len()];
    let mut prompt_index = Vec::with_capacity(open.len());
    for &row in &open {
        rows_per_prompt[rows[row].prompt] += 1;
        prompt_index.push(rows[row].prompt as i64);
    }
    let longest = open.iter().map(|&row| rows[row].max_tokens).max().unwrap_or(0);
    let mut cache = model.cache(keys, prompts, &rows_per_prompt, longest.min(CACHE_BLOCK))?;
    let mut logits = first_logits.f_index_select(0, &upload(&prompt_index, device)?)?; // [N, V]
    let mut tokens_done = 0;
    loop {
        let burst = burst_length(device).min(longest - tokens_done);
        let draws = upload_draws(rows, &open, burst, device)?;
        let mut ids = Vec::with_capacity(burst);
        let mut probs = Vec::with_capacity(burst);
        for n in 0..burst {
            let drawn = draw_tokens(&logits, sampling, &draws.f_select(1, n as i64)?)?;
            // Nothing follows the last token.
            if tokens_done + n + 1 < longest {
                logits = model.step(&drawn.ids, &mut cache)?;
            }
            ids.push(drawn.ids);
            probs.push(drawn.probs);
        }
        collect(rows, &open, &ids, &probs, hooks)?;
        let still_open: Vec<usize> =
            (0..open.len()).filter(|&i| rows[open[i]].open.is_some()).collect();
        if still_open.is_empty() {
            return Ok(());
        }
        tokens_done += burst;
        let decoding = Decoding {
            tokens: Some(tokens_done),
            limit: sampling.max_completion_length,
            ended: rows.len() - still_open.len(),
            rows: rows.len(),
        };
        if (hooks.watch)(decoding).is_break() {
            return Err(LearnError::Stopped);
        }
        // Copying the cache costs about as much as one step's attention: worth it for an eighth of
        // the rows.
        let left = longest - tokens_done;
        if still_open.len() * 8 <= open.len() * 7 || cache.room() < burst.min(left) {
            let room = left.min(CACHE_BLOCK);
            retain_rows(&mut cache, &mut logits, &still_open, room)?;
            open = still_open.into_iter().map(|i| open[i]).collect();
        }
    }
}

/// Returns `[N, burst]` f32 uniform draws, each row from its own stream.
fn upload_draws(
    rows: &mut [DecodingRow],
    open: &[usize],
    burst: usize,
    device: Device,
) -> Result<Tensor> {
    let mut draws = Vec::with_capacity(open.len() * burst);
    for &row in open {
        for _ in 0..burst {
            draws.push(rows[row].draws.uniform());
        }
    }
    Ok(upload(&draws, device)?.f_view([open.len() as i64, burst as i64])?)
}

/// Downloads a burst, and appends its tokens to the rows.
fn collect(
    rows: &mut [DecodingRow],
    open: &[usize],
    ids: &[Tensor],
    probs: &[Tensor],
    hooks: &mut SampleHooks<'_>,
) -> Result<()> {
    let burst = ids.len();
    let host_ids = Vec::<i64>::try_from(Tensor::f_stack(ids, 1)?.f_flatten(0, -1)?)?;
    let host_probs = Vec::<f32>::try_from(Tensor::f_stack(probs, 1)?.f_flatten(0, -1)?)?;
    for (i, (id, prob)) in host_ids.into_iter().zip(host_probs).enumerate() {
        // Softmax rounds to 0 below about 1e-38; `clamp` leaves a NaN, which ends the run later.
        let log_prob = prob.clamp(f32::MIN_POSITIVE, 1.0).ln();
        // Ids are indices into the vocabulary, which fit 32 bits.
        rows[open[i / burst]].push(id as u32, log_prob, hooks)?;
    }
    Ok(())
}

fn retain_rows(
    cache: &mut KvCache,
    logits: &mut Tensor,
    rows: &[usize],
    room: usize,
) -> Result<()> {
    cache.retain_rows(rows, room)?;
    let index: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    *logits = logits.f_index_select(0, &upload(&index, logits.device())?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    use crate::testing::tiny;

    fn settings(temperature: f64, n: usize, length: usize) -> Sampling {
        Sampling {
            num_generations: n,
            max_completion_length: length,
            temperature,
            ..Sampling::default()
        }
    }

    /// Decodes without a cache: one row, the full sequence in every pass.
    fn greedy_reference(model: &Model, prompt: &[u32], length: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..length {
            let hidden = model.hidden(&model.batch(&[&tokens]).unwrap()).unwrap();
            let logits = model.logits(&hidden.select(1, -1)).unwrap();
            tokens.push(logits.argmax(-1, false).int64_value(&[0]) as u32);
        }
        tokens[prompt.len()..].to_vec()
    }

    #[test]
    fn greedy_with_cache_equals_greedy_without() {
        for family in ["llama", "qwen2", "qwen3", "olmo2"] {
            let model = tiny(family, 5);
            let prompts: [&[u32]; 3] = [&[1, 2, 3, 4, 5, 6], &[7], &[8, 9, 10]];
            let got = sample(&model, &prompts, &settings(0.0, 2, 11), &[], 0).unwrap();
            for (p, prompt) in prompts.iter().enumerate() {
                let expected = greedy_reference(&model, prompt, 11);
                assert_eq!(got[2 * p].tokens, expected, "{family}, prompt {p}");
                assert_eq!(got[2 * p + 1].tokens, expected);
                assert!(!got[2 * p].finished);
            }
        }
    }

    #[test]
    fn sampled_log_probs_match_forward_pass() {
        let model = tiny("qwen3", 6);
        let prompt: &[u32] = &[3, 1, 4];
        for c in sample(&model, &[&[9, 9, 9, 9, 9, 9], prompt], &settings(0.7, 5, 9), &[], 42)
            .unwrap()
            .split_off(5)
        {
            let tokens = [prompt, &c.tokens].concat();
            let logits =
                model.logits(&model.hidden(&model.batch(&[&tokens]).unwrap()).unwrap()).unwrap();
            let log_probs = (logits / 0.7).log_softmax(-1, Kind::Float);
            for (t, (&token, &got)) in c.tokens.iter().zip(&c.log_probs).enumerate() {
                let expected =
                    log_probs.double_value(&[0, (prompt.len() + t - 1) as i64, i64::from(token)]);
                assert!((f64::from(got) - expected).abs() < 1e-5, "{got} {expected}");
            }
        }
    }

    #[test]
    fn samples_are_determined_by_seed() {
        let model = tiny("llama", 7);
        let draw =
            |seed| sample(&model, &[&[1, 2], &[3]], &settings(1.0, 4, 8), &[], seed).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let rows = draw(1);
        assert!(rows[0].tokens != rows[1].tokens, "samples of a group differ");
    }

    #[test]
    fn stop_token_ends_only_its_row() {
        let model = tiny("llama", 8);
        let free = sample(&model, &[&[1, 2], &[3, 4, 5]], &settings(1.0, 4, 20), &[], 3).unwrap();
        let stop = free[0].tokens[5];
        let stopped =
            sample(&model, &[&[1, 2], &[3, 4, 5]], &settings(1.0, 4, 20), &[stop], 3).unwrap();
        for (free, stopped) in free.iter().zip(&stopped) {
            let end = free.tokens.iter().position(|&t| t == stop).map_or(20, |at| at + 1);
            assert_eq!(stopped.tokens, free.tokens[..end]);
            assert_eq!(stopped.finished, free.tokens.contains(&stop));
            assert_eq!(stopped.log_probs.len(), end);
        }
    }

    #[test]
    fn completions_are_reported_when_they_end() {
        let model = tiny("llama", 8);
        let prompts: [&[u32]; 3] = [&[1, 2], &[3, 4, 5], &[6]];
        let sampling = settings(1.0, 4, 20);
        let free = sample(&model, &prompts, &sampling, &[], 3).unwrap();
        let stop = free[0].tokens[1];
        let finished = std::cell::RefCell::new(Vec::new());
        let decoded = std::cell::Cell::new(0);
        let hooks = SampleHooks {
            max_rows: 8,
            max_prompts: 8,
            is_finished: &|tokens| Ok(tokens.contains(&stop)),
            watch: &mut |decoding| {
                decoded.set(decoding.tokens.unwrap());
                ControlFlow::Continue(())
            },
            on_finished: &mut |index, completion| {
                // It is reported in the burst in which it ended, before the next call of `watch`.
                assert!(completion.tokens.len() > decoded.get() || decoded.get() == 20);
                finished.borrow_mut().push((index, completion));
                Ok(())
            },
        };
        sample_with(hooks, &model, &prompts, &sampling, 3).unwrap();
        let mut finished = finished.into_inner();
        assert!(!finished.is_sorted_by_key(|(index, _)| *index), "some end before others");
        finished.sort_by_key(|(index, _)| *index);
        let expected = sample(&model, &prompts, &sampling, &[stop], 3).unwrap();
        let indices: Vec<usize> = finished.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, Vec::from_iter(0..12));
        for ((_, got), expected) in finished.iter().zip(&expected) {
            assert_eq!((&got.tokens, got.finished), (&expected.tokens, expected.finished));
        }
    }

    #[test]
    fn callback_error_ends_sampling() {
        let model = tiny("llama", 8);
        for (stop_fails, report_fails) in [(true, false), (false, true)] {
            let hooks = SampleHooks {
                max_rows: MAX_ROWS,
                max_prompts: MAX_ROWS,
                is_finished: &|_| if stop_fails { Err(LearnError::Logits) } else { Ok(false) },
                watch: &mut |_| ControlFlow::Continue(()),
                on_finished: &mut |_, _| {
                    if report_fails { Err(LearnError::Logits) } else { Ok(()) }
                },
            };
            assert!(sample_with(hooks, &model, &[&[1]], &settings(1.0, 2, 3), 0).is_err());
        }
    }

    #[test]
    fn large_prompt_batches_are_sampled_in_chunks() {
        let model = tiny("llama", 8);
        let prompts: Vec<Vec<u32>> = (0..70).map(|p| vec![p % 20, 3]).collect();
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let completions = sample(&model, &slices, &settings(1.0, 8, 3), &[], 3).unwrap();
        assert_eq!(completions.len(), 560);
        // Prompts 64 and 4 are the same, yet each has its own draws.
        assert_eq!(prompts[64], prompts[4]);
        assert_ne!(completions[64 * 8..65 * 8], completions[4 * 8..5 * 8]);
    }

    #[test]
    fn prompts_that_are_decoded_together_are_limited() {
        let model = tiny("llama", 8);
        let prompts: [&[u32]; 5] = [&[1, 2], &[3, 4, 5], &[6], &[7], &[8]];
        let most_rows = std::cell::Cell::new(0);
        let finished = std::cell::Cell::new(0);
        let hooks = SampleHooks {
            max_rows: MAX_ROWS,
            max_prompts: 2,
            is_finished: &|_| Ok(false),
            watch: &mut |decoding| {
                most_rows.set(most_rows.get().max(decoding.rows));
                ControlFlow::Continue(())
            },
            on_finished: &mut |_, _| {
                finished.set(finished.get() + 1);
                Ok(())
            },
        };
        sample_with(hooks, &model, &prompts, &settings(1.0, 3, 9), 3).unwrap();
        assert_eq!((most_rows.get(), finished.get()), (6, 15));
    }

    #[test]
    fn out_of_range_sampling_settings_are_rejected() {
        let model = tiny("llama", 9);
        let bad = Sampling { top_p: 0.0, ..settings(1.0, 1, 1) };
        let error = sample(&model, &[&[1]], &bad, &[], 0).unwrap_err();
        assert!(matches!(error, LearnError::Setting(problem) if problem.key == "rollout.top_p"));
        assert!(sample(&model, &[&[]], &settings(1.0, 1, 1), &[], 0).is_err());
        assert!(sample(&model, &[&[99]], &settings(1.0, 1, 1), &[], 0).is_err());
    }
}
