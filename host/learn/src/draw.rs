//! Draws tokens from logits: temperature, top-k and top-p.

use corver_core::Sampling;
use tch::{Kind, Tensor};

use crate::error::Result;

/// One token per row.
pub(crate) struct DrawnTokens {
    /// `[N]` i64, indices into the vocabulary.
    pub(crate) ids: Tensor,
    /// `[N]` f32, probability of each: softmax over the whole vocabulary, before top-k and top-p.
    pub(crate) probs: Tensor,
}

/// Draws a token for each row of `logits` `[N, V]` f32, with uniform `draws` `[N]` in [0, 1).
pub(crate) fn draw_tokens(
    logits: &Tensor,
    sampling: &Sampling,
    draws: &Tensor,
) -> Result<DrawnTokens> {
    let is_greedy = sampling.temperature == 0.0;
    let scaled = if is_greedy || sampling.temperature == 1.0 {
        logits.shallow_clone()
    } else {
        logits.f_div_scalar(sampling.temperature)?
    };
    let vocab_probs = scaled.f_softmax(-1, Kind::Float)?;
    let ids = if is_greedy {
        logits.f_max_dim(-1, false)?.1 // faster than `argmax` on the CPU
    } else if sampling.top_p < 1.0 || sampling.top_k.is_some() {
        draw_truncated(&vocab_probs, sampling, draws)?
    } else {
        draw_weighted(&vocab_probs, draws)?
    };
    let probs = vocab_probs.f_gather(1, &ids.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
    Ok(DrawnTokens { ids, probs })
}

/// Tokens that are sorted at first to find those within `top_p`. Most distributions need far fewer.
const CANDIDATES: i64 = 256;

/// Draws from the `top_k` most probable tokens, cut to the shortest list whose probability before
/// its last token is below `top_p`, as `transformers` does.
///
/// Without a `top_k`, no more of the vocabulary is sorted than `top_p` needs.
fn draw_truncated(vocab_probs: &Tensor, sampling: &Sampling, draws: &Tensor) -> Result<Tensor> {
    let vocab = vocab_probs.size()[1];
    let top_k = sampling.top_k.map(|k| i64::try_from(k).unwrap_or(i64::MAX));
    let mut k = top_k.unwrap_or(CANDIDATES);
    loop {
        k = k.min(vocab);
        let (mut probs, ids) = vocab_probs.f_topk(k, -1, true, true)?; // [N, k], descending
        if top_k.is_some() {
            probs = probs.f_div(&probs.f_sum_dim_intlist(-1, true, Kind::Float)?)?;
        }
        let sums = probs.f_cumsum(-1, Kind::Float)?;
        let covered = sums.f_narrow(1, k - 1, 1)?.f_min()?.f_double_value(&[])?;
        if top_k.is_none() && k < vocab && covered < sampling.top_p {
            k *= 8;
            continue;
        }
        let truncated = probs.f_mul(&sums.f_sub(&probs)?.f_lt(sampling.top_p)?)?;
        let index = draw_weighted(&truncated, draws)?;
        return Ok(ids.f_gather(1, &index.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?);
    }
}

/// Draws an index in proportion to `weights` `[N, V]` (≥ 0, not all 0): the first at which their
/// running sum exceeds `draws` × total. An index of weight 0 is drawn only if a GPU's rounding of
/// the running sums selects a block of zeros.
///
/// Sums run over blocks first and then within one block, which is faster than over the vocabulary.
fn draw_weighted(weights: &Tensor, draws: &Tensor) -> Result<Tensor> {
    let (n, vocab) = weights.size2()?;
    let width = 1 << vocab.trailing_zeros().min(8);
    let blocks = weights.f_view([n, vocab / width, width])?;
    let sums = blocks.f_sum_dim_intlist(-1, false, Kind::Float)?; // [N, V / width]
    let running = sums.f_cumsum(-1, Kind::Float)?;
    let goal = last_column(&running)?.f_mul(&draws.f_unsqueeze(1)?)?; // [N, 1]
    // A draw is at most 1 − 2⁻²⁴, so the goal is below the last sum, also after rounding.
    let block = goal.f_searchsorted(&running, false, true, "right", None::<&Tensor>)?; // [N, 1]
    let before = running.f_sub(&sums)?.f_gather(1, &block, false)?;
    let block_weights = blocks
        .f_gather(1, &block.f_unsqueeze(-1)?.f_expand([n, 1, width], false)?, false)?
        .f_squeeze_dim(1)?;
    let block_goal = goal.f_sub(&before)?.f_clamp_min(0)?;
    let offset = first_above(&block_weights.f_cumsum(-1, Kind::Float)?, &block_goal)?;
    Ok(block.f_mul_scalar(width)?.f_add(&offset)?.f_squeeze_dim(1)?)
}

/// Returns the first index `[N, 1]` i64 at which `running` `[N, n]`, ascending, exceeds `goal`
/// `[N, 1]`, or else the first that reaches the last sum: rounding may lift the goal to this sum.
/// The index is 0 where all weights are 0.
fn first_above(running: &Tensor, goal: &Tensor) -> Result<Tensor> {
    let none = None::<&Tensor>;
    let above = goal.f_searchsorted(running, false, true, "right", none)?;
    let total = last_column(running)?.f_contiguous()?;
    Ok(above.f_minimum(&total.f_searchsorted(running, false, false, "left", none)?)?)
}

fn last_column(running: &Tensor) -> Result<Tensor> {
    Ok(running.f_narrow(1, running.size()[1] - 1, 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_sampling_follows_weights() {
        let weights = Tensor::from_slice(&[0.0f32, 0.25, 0.0, 0.5, 0.25, 0.0]).view([1, 6]);
        for (draw, expected) in
            [(0.0, 1), (0.2, 1), (0.25, 3), (0.74, 3), (0.75, 4), (0.999_999_94, 4)]
        {
            let got = draw_weighted(&weights, &Tensor::from_slice(&[draw as f32])).unwrap();
            assert_eq!(got.int64_value(&[0]), expected, "{draw}");
        }
    }

    #[test]
    fn draws_near_one_return_an_index_with_weight() {
        for vocab in [3, 255, 512, 4096, 151_936] {
            let cpu = (Kind::Float, tch::Device::Cpu);
            let weights = (Tensor::arange(64 * vocab, cpu) * 0.37).cos().square();
            let weights = weights.view([64, vocab]);
            let _ = weights.narrow(1, vocab - 2, 2).zero_();
            let draws = Tensor::full([64], 1.0 - 0.5f64.powi(24), cpu);
            let ids = draw_weighted(&weights, &draws).unwrap().unsqueeze(1);
            assert!(weights.gather(1, &ids, false).min().double_value(&[]) > 0.0, "{vocab}");
        }
    }

    #[test]
    fn goal_at_last_sum_returns_an_index_in_range() {
        let running = Tensor::from_slice(&[0.25f32, 0.5, 0.5, 0.0, 0.0, 0.0]).view([2, 3]);
        let goal = Tensor::from_slice(&[0.5f32, 0.0]).view([2, 1]);
        let index = Vec::<i64>::try_from(first_above(&running, &goal).unwrap().view(-1)).unwrap();
        assert_eq!(index, [1, 0]);
    }

    /// Returns the tokens that any draw can return.
    fn drawable(probs: &Tensor, top_p: f64, top_k: Option<usize>) -> Vec<i64> {
        let sampling = Sampling { top_p, top_k, ..Sampling::default() };
        let mut tokens = Vec::new();
        for i in 0..100 {
            let draw = Tensor::from_slice(&[i as f32 / 100.0]);
            let token = draw_truncated(probs, &sampling, &draw).unwrap();
            tokens.push(token.int64_value(&[0]));
        }
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let probs = Tensor::from_slice(&[0.1f32, 0.4, 0.2, 0.3]).view([1, 4]);
        assert_eq!(drawable(&probs, 1.0, Some(2)), [1, 3]);
        assert_eq!(drawable(&probs, 0.5, None), [1, 3]);
        assert_eq!(drawable(&probs, 0.75, None), [1, 2, 3]);
        assert_eq!(drawable(&probs, 0.3, None), [1]);
        assert_eq!(drawable(&probs, 1.0, None), [0, 1, 2, 3]);
    }
}
