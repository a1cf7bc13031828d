//! Drawing completions: every prompt is run once, its keys and values are spread over its samples,
//! and all rows are decoded together; rows that have ended leave the batch.
//!
//! Each row draws from its own random stream, named by seed, prompt and sample, so that a row's
//! draws depend neither on the other rows nor on when they end. (The logits do, in their last bits:
//! matrix products round differently at different batch sizes. The same call gives the same
//! result.)

use std::ops::ControlFlow;

use corver_core::{Decoding, Sampling};
use tch::{Device, Kind, Tensor};

use crate::cache::KvCache;
use crate::error::{LearnError, Result};
use crate::files;
use crate::model::Model;
use crate::random::Stream;

/// One drawn completion, as ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// `[T]`; what ended it is the last of them.
    pub tokens: Vec<u32>,
    /// `[T]` nats: log-softmax of the logits divided by the temperature (1 where decoding is
    /// greedy), over the whole vocabulary, before top-k and top-p cut it down. This is the policy
    /// that the loss differentiates.
    pub log_probs: Vec<f32>,
    /// Ended by what ends one, not by its length.
    pub finished: bool,
}

/// Rows decoded together at most, unless the caller says otherwise; bounds the memory of a call
/// with many prompts.
pub const MAX_ROWS: usize = 512;

/// Asked every few tokens: whether to go on.
pub type Watch<'w> = dyn FnMut(Decoding) -> ControlFlow<()> + 'w;

/// What surrounds a sampling. An error of one of these ends it.
pub struct Surroundings<'s> {
    /// Rows decoded together at most; those of one prompt always are.
    pub max_rows: usize,
    /// Whether a completion ends with the last of these tokens.
    pub ends: &'s dyn Fn(&[u32]) -> Result<bool>,
    /// Breaks off with [`LearnError::Stopped`].
    pub watch: &'s mut Watch<'s>,
    /// Is given every completion soon after it has ended, with its place among all of them.
    pub ended: &'s mut dyn FnMut(usize, Completion) -> Result<()>,
}

/// Draws `sampling.num_generations` completions for each prompt; those of one prompt next to each
/// other, in prompt order. The `stop` tokens end one.
///
/// # Errors
/// Settings out of range, an empty or too long prompt, or a device that fails.
pub fn sample(
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    stop: &[u32],
    seed: u64,
) -> Result<Vec<Completion>> {
    let mut all = vec![Completion::default(); prompts.len() * sampling.num_generations];
    let surroundings = Surroundings {
        max_rows: MAX_ROWS,
        ends: &|tokens| Ok(tokens.last().is_some_and(|last| stop.contains(last))),
        watch: &mut |_| ControlFlow::Continue(()),
        ended: &mut |place, completion| {
            all[place] = completion;
            Ok(())
        },
    };
    sample_within(surroundings, model, prompts, sampling, seed)?;
    Ok(all)
}

/// As [`sample`]; the completions go to `surroundings`.
///
/// # Errors
/// As [`sample`], and those of `surroundings`.
pub fn sample_within(
    mut surroundings: Surroundings<'_>,
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    seed: u64,
) -> Result<()> {
    check(sampling)?;
    let _guard = tch::no_grad_guard();
    let at_once = (surroundings.max_rows / sampling.num_generations).max(1);
    for (part, chunk) in prompts.chunks(at_once).enumerate() {
        let mut rows = Vec::with_capacity(chunk.len() * sampling.num_generations);
        for (n, tokens) in chunk.iter().enumerate() {
            let room = model.config().max_positions.saturating_sub(tokens.len());
            let limit = sampling.max_completion_length.min(room);
            for generation in 0..sampling.num_generations {
                let question = part * at_once + n;
                let draws = Stream::new(seed, "sample", &[question as u64, generation as u64]);
                let place = question * sampling.num_generations + generation;
                rows.push(Row {
                    place,
                    prompt: n,
                    limit,
                    draws,
                    open: Some(Completion::default()),
                });
            }
        }
        decode(model, chunk, sampling, &mut rows, &mut surroundings)?;
    }
    Ok(())
}

struct Row {
    /// Among all completions.
    place: usize,
    /// Among those that are decoded together.
    prompt: usize,
    limit: usize,
    draws: Stream,
    /// Until it has ended.
    open: Option<Completion>,
}

impl Row {
    fn push(
        &mut self,
        token: u32,
        log_prob: f32,
        surroundings: &mut Surroundings<'_>,
    ) -> Result<()> {
        if let Some(completion) = &mut self.open {
            completion.tokens.push(token);
            completion.log_probs.push(log_prob);
            completion.finished = (surroundings.ends)(&completion.tokens)?;
        }
        self.end(surroundings)
    }

    /// Hands the completion over if no token follows.
    fn end(&mut self, surroundings: &mut Surroundings<'_>) -> Result<()> {
        match self
            .open
            .take_if(|completion| completion.finished || completion.tokens.len() >= self.limit)
        {
            Some(completion) => (surroundings.ended)(self.place, completion),
            None => Ok(()),
        }
    }
}

fn check(sampling: &Sampling) -> Result<()> {
    match corver_settings::check("rollout", sampling).into_iter().next() {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

/// Tokens by which the cache grows; a multiple of every burst.
pub(crate) const CACHE_BLOCK: usize = 64;

/// Tokens decoded between two looks at the results. A look waits for the GPU, so there it pays to
/// look seldom; on the CPU it costs nothing, while a row that has ended costs a row of work.
fn burst_length(device: Device) -> usize {
    if device.is_cuda() { 16 } else { 4 }
}

fn decode(
    model: &Model,
    prompts: &[&[u32]],
    sampling: &Sampling,
    rows: &mut [Row],
    surroundings: &mut Surroundings<'_>,
) -> Result<()> {
    let burst = burst_length(model.device());
    rows.iter_mut().try_for_each(|row| row.end(surroundings))?;
    let mut open: Vec<usize> = (0..rows.len()).filter(|&r| rows[r].open.is_some()).collect(); // cache row → row
    if open.is_empty() {
        return Ok(());
    }
    let _frozen = model.freeze()?;
    let (keys, first) = model.prefill(prompts)?;
    // Once per batch: every weight and every operation has had its part in these.
    if !files::is_finite(&first)? {
        return Err(LearnError::Logits);
    }
    let mut of_prompt = vec![0; prompts.len()];
    open.iter().for_each(|&row| of_prompt[rows[row].prompt] += 1);
    let mut cache = model.cache(keys, prompts, &of_prompt, CACHE_BLOCK)?;
    let prompt_of_row: Vec<i64> = open.iter().map(|&row| rows[row].prompt as i64).collect();
    let mut logits = first
        .f_index_select(0, &Tensor::f_from_slice(&prompt_of_row)?.f_to_device(model.device())?)?; // [N, V]
    let mut tokens_done = 0;
    loop {
        let draws = upload_draws(rows, &open, burst, model.device())?;
        let (mut tokens, mut log_probs) = (Vec::with_capacity(burst), Vec::with_capacity(burst));
        for n in 0..burst {
            let drawn = choose(&logits, sampling, &draws.f_select(1, n as i64)?)?;
            logits = model.step(&drawn.0, &mut cache)?;
            tokens.push(drawn.0);
            log_probs.push(drawn.1);
        }
        collect(rows, &open, &tokens, &log_probs, surroundings)?;
        let still: Vec<usize> = (0..open.len()).filter(|&i| rows[open[i]].open.is_some()).collect();
        if still.is_empty() {
            return Ok(());
        }
        tokens_done += burst;
        let (limit, ended) = (sampling.max_completion_length, rows.len() - still.len());
        if (surroundings.watch)(Decoding {
            tokens: Some(tokens_done),
            limit,
            ended,
            rows: rows.len(),
        })
        .is_break()
        {
            return Err(LearnError::Stopped);
        }
        // Copying the cache costs about as much as one step's attention: worth it for an eighth of
        // the rows.
        if still.len() * 8 <= open.len() * 7 || cache.room() < burst {
            keep(&mut cache, &mut logits, &still)?;
            open = still.into_iter().map(|i| open[i]).collect();
        }
    }
}

/// `[N, burst]` f32 uniform draws.
fn upload_draws(rows: &mut [Row], open: &[usize], burst: usize, device: Device) -> Result<Tensor> {
    let draws: Vec<f32> = open
        .iter()
        .flat_map(|&r| (0..burst).map(move |_| r))
        .map(|r| rows[r].draws.uniform())
        .collect();
    Ok(Tensor::f_from_slice(&draws)?
        .f_view([open.len() as i64, burst as i64])?
        .f_to_device(device)?)
}

fn collect(
    rows: &mut [Row],
    open: &[usize],
    tokens: &[Tensor],
    log_probs: &[Tensor],
    surroundings: &mut Surroundings<'_>,
) -> Result<()> {
    let tokens = Vec::<i64>::try_from(Tensor::f_stack(tokens, 1)?.f_flatten(0, -1)?)?;
    let log_probs = Vec::<f32>::try_from(Tensor::f_stack(log_probs, 1)?.f_flatten(0, -1)?)?;
    let burst = tokens.len() / open.len().max(1);
    for (i, (token, log_prob)) in tokens.into_iter().zip(log_probs).enumerate() {
        // Ids are indices into the vocabulary, which fit 32 bits.
        rows[open[i / burst]].push(token as u32, log_prob, surroundings)?;
    }
    Ok(())
}

fn keep(cache: &mut KvCache, logits: &mut Tensor, still: &[usize]) -> Result<()> {
    cache.keep(still, CACHE_BLOCK)?;
    let index: Vec<i64> = still.iter().map(|&i| i as i64).collect();
    *logits =
        logits.f_index_select(0, &Tensor::f_from_slice(&index)?.f_to_device(logits.device())?)?;
    Ok(())
}

/// One token per row: (ids `[N]` i64, log-probabilities `[N]` f32). `logits` `[N, V]` f32, `draws`
/// `[N]` in [0, 1).
fn choose(logits: &Tensor, sampling: &Sampling, draws: &Tensor) -> Result<(Tensor, Tensor)> {
    let greedy = sampling.temperature == 0.0;
    let scaled =
        if greedy { logits.shallow_clone() } else { logits.f_div_scalar(sampling.temperature)? };
    let log_probs = scaled.f_log_softmax(-1, Kind::Float)?;
    let tokens = if greedy {
        logits.f_argmax(-1, false)?
    } else if sampling.top_p < 1.0 || sampling.top_k.is_some() {
        draw_from_top(&log_probs, sampling, draws)?
    } else {
        invert(&log_probs.f_exp()?, draws)?
    };
    let chosen = log_probs.f_gather(1, &tokens.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
    Ok((tokens, chosen))
}

/// Candidates that a `top_p` is looked for among at first. Most distributions have far fewer that
/// count.
const CANDIDATES: i64 = 256;

/// The `top_k` most probable tokens, and of those the shortest list whose probability before its
/// last token is below `top_p`, as `transformers` does. Without a `top_k` no more of the vocabulary
/// is sorted than it takes to reach `top_p`.
fn draw_from_top(log_probs: &Tensor, sampling: &Sampling, draws: &Tensor) -> Result<Tensor> {
    let vocab = log_probs.size()[1];
    let top_k = sampling.top_k.map(|k| i64::try_from(k).unwrap_or(i64::MAX));
    let mut k = top_k.unwrap_or(CANDIDATES);
    loop {
        k = k.min(vocab);
        let (values, ids) = log_probs.f_topk(k, -1, true, true)?; // [N, k], falling
        let probs =
            if top_k.is_none() { values.f_exp()? } else { values.f_softmax(-1, Kind::Float)? };
        let sums = probs.f_cumsum(-1, Kind::Float)?;
        let reached = sums.f_narrow(1, k - 1, 1)?.f_min()?.f_double_value(&[])?;
        if top_k.is_none() && k < vocab && reached < sampling.top_p {
            k *= 8;
            continue;
        }
        let kept = probs.f_mul(&sums.f_sub(&probs)?.f_lt(sampling.top_p)?)?;
        let place = invert(&kept, draws)?;
        return Ok(ids.f_gather(1, &place.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?);
    }
}

/// The first index at which the running sum of `weights` `[N, V]` (≥ 0, not all 0) exceeds `draws ×
/// total`: a draw in proportion to the weights. A weight of 0 is never drawn. The sums are of
/// blocks first, and then within one block.
fn invert(weights: &Tensor, draws: &Tensor) -> Result<Tensor> {
    let (n, vocab) = weights.size2()?;
    let width = 1 << vocab.trailing_zeros().min(8);
    let blocks = weights.f_view([n, vocab / width, width])?;
    let sums = blocks.f_sum_dim_intlist(-1, false, Kind::Float)?; // [N, V / width]
    let running = sums.f_cumsum(-1, Kind::Float)?;
    let goal = last(&running)?.f_mul(&draws.f_unsqueeze(1)?)?; // [N, 1]
    let block = first_above(&running, &goal)?; // [N, 1]
    let before = running.f_gather(1, &block, false)?.f_sub(&sums.f_gather(1, &block, false)?)?;
    let within = blocks
        .f_gather(1, &block.f_unsqueeze(-1)?.f_expand([n, 1, width], false)?, false)?
        .f_squeeze_dim(1)?;
    let place =
        first_above(&within.f_cumsum(-1, Kind::Float)?, &goal.f_sub(&before)?.f_clamp_min(0)?)?;
    Ok(block.f_mul_scalar(width)?.f_add(&place)?.f_squeeze_dim(1)?)
}

/// `running` `[N, n]`, rising; `goal` `[N, 1]` → `[N, 1]` i64.
fn first_above(running: &Tensor, goal: &Tensor) -> Result<Tensor> {
    // Rounding may lift the goal to the last sum; the first place that reaches this sum is then
    // right.
    let found = running.f_gt_tensor(goal)?.f_logical_or(&running.f_eq_tensor(&last(running)?)?)?;
    Ok(found.f_to_kind(Kind::Uint8)?.f_argmax(-1, true)?)
}

fn last(running: &Tensor) -> Result<Tensor> {
    Ok(running.f_narrow(1, running.size()[1] - 1, 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny;

    fn settings(temperature: f64, n: usize, length: usize) -> Sampling {
        Sampling {
            num_generations: n,
            max_completion_length: length,
            temperature,
            ..Sampling::default()
        }
    }

    /// The plain way: no cache, one row, whole sequence each time.
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
            let all = [prompt, &c.tokens].concat();
            let logits =
                model.logits(&model.hidden(&model.batch(&[&all]).unwrap()).unwrap()).unwrap();
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
    fn completions_are_handed_over_as_they_end() {
        let model = tiny("llama", 8);
        let prompts: [&[u32]; 3] = [&[1, 2], &[3, 4, 5], &[6]];
        let sampling = settings(1.0, 4, 20);
        let free = sample(&model, &prompts, &sampling, &[], 3).unwrap();
        let stop = free[0].tokens[1];
        let ends = |tokens: &[u32]| Ok(tokens.contains(&stop));
        let (ended, decoded) = (std::cell::RefCell::new(Vec::new()), std::cell::Cell::new(0));
        let surroundings = Surroundings {
            max_rows: 8,
            ends: &ends,
            watch: &mut |decoding| {
                decoded.set(decoding.tokens.unwrap());
                ControlFlow::Continue(())
            },
            ended: &mut |place, completion| {
                // In the burst in which it ended: no look at the rows has come between.
                assert!(completion.tokens.len() > decoded.get() || decoded.get() == 20);
                ended.borrow_mut().push((place, completion));
                Ok(())
            },
        };
        sample_within(surroundings, &model, &prompts, &sampling, 3).unwrap();
        let mut ended = ended.into_inner();
        assert!(!ended.is_sorted_by_key(|(place, _)| *place), "some ended before others");
        ended.sort_by_key(|(place, _)| *place);
        let expected = sample(&model, &prompts, &sampling, &[stop], 3).unwrap();
        let places: Vec<usize> = ended.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, Vec::from_iter(0..12));
        for ((_, got), expected) in ended.iter().zip(&expected) {
            assert_eq!((&got.tokens, got.finished), (&expected.tokens, expected.finished));
        }
    }

    #[test]
    fn callback_error_ends_sampling() {
        let model = tiny("llama", 8);
        for (ends_fails, ended_fails) in [(true, false), (false, true)] {
            let surroundings = Surroundings {
                max_rows: MAX_ROWS,
                ends: &|_| if ends_fails { Err(LearnError::Logits) } else { Ok(false) },
                watch: &mut |_| ControlFlow::Continue(()),
                ended: &mut |_, _| if ended_fails { Err(LearnError::Logits) } else { Ok(()) },
            };
            assert!(sample_within(surroundings, &model, &[&[1]], &settings(1.0, 2, 3), 0).is_err());
        }
    }

    #[test]
    fn large_prompt_batches_are_sampled_in_chunks() {
        let model = tiny("llama", 8);
        let prompts: Vec<Vec<u32>> = (0..70).map(|p| vec![p % 20, 3]).collect();
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let all = sample(&model, &slices, &settings(1.0, 8, 3), &[], 3).unwrap();
        assert_eq!(all.len(), 560);
        // Prompts 64 and 4 are the same, yet each has its own draws.
        assert_eq!(prompts[64], prompts[4]);
        assert_ne!(all[64 * 8..65 * 8], all[4 * 8..5 * 8]);
    }

    #[test]
    fn inverse_sampling_follows_weights() {
        let weights = Tensor::from_slice(&[0.0f32, 0.25, 0.0, 0.5, 0.25, 0.0]).view([1, 6]);
        for (draw, expected) in
            [(0.0, 1), (0.2, 1), (0.25, 3), (0.74, 3), (0.75, 4), (0.999_999_94, 4)]
        {
            let got = invert(&weights, &Tensor::from_slice(&[draw as f32])).unwrap();
            assert_eq!(got.int64_value(&[0]), expected, "{draw}");
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let log_probs = Tensor::from_slice(&[0.1f32, 0.4, 0.2, 0.3]).log().view([1, 4]);
        let reach = |top_p, top_k| -> Vec<i64> {
            let sampling = Sampling { top_p, top_k, ..settings(1.0, 1, 1) };
            let mut seen: Vec<i64> = (0..100)
                .map(|i| {
                    let draw = Tensor::from_slice(&[i as f32 / 100.0]);
                    draw_from_top(&log_probs, &sampling, &draw).unwrap().int64_value(&[0])
                })
                .collect();
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(reach(1.0, Some(2)), [1, 3]);
        assert_eq!(reach(0.5, None), [1, 3]);
        assert_eq!(reach(0.75, None), [1, 2, 3]);
        assert_eq!(reach(0.3, None), [1]);
        assert_eq!(reach(1.0, None), [0, 1, 2, 3]);
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
