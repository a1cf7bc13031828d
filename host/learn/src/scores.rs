//! Log-probabilities of given tokens, with the logits of only a few tokens in memory.
//!
//! The output layer is frozen, so the derivative of a token's log-probability by its hidden state
//! has a closed form, (W_y − Σ_v p_v W_v) / temperature: a vector of the hidden state's own size.
//! It is computed together with the log-probability, chunk by chunk. The loss then needs only the
//! chain rule through the hidden states, and no tensor of tokens × vocabulary outlives its chunk.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::model::Model;

/// Returns the number of tokens of a chunk, whose logits are in memory together.
///
/// 4 MiB fit into a CPU's cache, but a product of few rows by a large vocabulary waits for the
/// memory, so a chunk has at least 128 rows. A GPU needs larger products.
pub(crate) fn chunk_rows(device: Device, vocab_size: usize) -> usize {
    if device.is_cuda() {
        ((1 << 26) / vocab_size).max(1)
    } else {
        ((1 << 20) / vocab_size).max(128)
    }
}

/// Log-probabilities of n tokens, with their derivatives.
pub(crate) struct TokenScores {
    /// `[n]` f32, nats, at the given temperature.
    pub(crate) log_probs: Tensor,
    /// `[n]` f32, nats: entropy of each token's distribution.
    pub(crate) entropy: Tensor,
    /// `[n, D]` f32: derivative of each log-probability by its hidden state.
    pub(crate) grad_hidden: Tensor,
}

/// Scores `targets` `[n]` i64 from the hidden states `[n, D]` before them, without a graph.
pub(crate) fn score(
    model: &Model,
    hidden: &Tensor,
    targets: &Tensor,
    temperature: f64,
) -> Result<TokenScores> {
    let _guard = tch::no_grad_guard();
    let mut log_prob_parts = Vec::new();
    let mut entropy_parts = Vec::new();
    let mut grad_parts = Vec::new();
    for (rows, row_targets) in chunks(model, hidden, targets)? {
        let logits = model.logits(&rows)?.f_div_scalar_(temperature)?; // [c, V]
        let log_probs = logits.f_log_softmax(-1, Kind::Float)?;
        drop(logits); // memory: one tensor of [c, V] less
        let index = row_targets.f_unsqueeze(1)?;
        log_prob_parts.push(log_probs.f_gather(1, &index, false)?.f_squeeze_dim(1)?);
        let probs = log_probs.f_exp()?;
        let terms = probs.f_mul(&log_probs)?;
        entropy_parts.push(terms.f_sum_dim_intlist(-1, false, Kind::Float)?.f_neg()?);
        drop(terms);
        drop(log_probs);
        // Derivative by the logits: 1 at the target, minus p everywhere.
        let ones = index.f_ones_like()?.f_to_kind(Kind::Float)?;
        let grad_logits = probs.f_neg()?.f_scatter_add(1, &index, &ones)?;
        let grad = grad_logits.f_to_kind(model.kind())?.f_matmul(model.head_weight())?;
        grad_parts.push(grad.f_to_kind(Kind::Float)?.f_div_scalar_(temperature)?);
    }
    Ok(TokenScores {
        log_probs: Tensor::f_cat(&log_prob_parts, 0)?,
        entropy: Tensor::f_cat(&entropy_parts, 0)?,
        grad_hidden: Tensor::f_cat(&grad_parts, 0)?,
    })
}

/// Returns the log-probabilities of [`score`] alone.
pub(crate) fn log_probs(
    model: &Model,
    hidden: &Tensor,
    targets: &Tensor,
    temperature: f64,
) -> Result<Tensor> {
    let _guard = tch::no_grad_guard();
    let mut parts = Vec::new();
    for (rows, row_targets) in chunks(model, hidden, targets)? {
        let logits = model.logits(&rows)?.f_div_scalar_(temperature)?;
        let chosen = logits.f_gather(1, &row_targets.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
        parts.push(chosen.f_sub(&logits.f_logsumexp([-1i64].as_slice(), false)?)?);
    }
    Ok(Tensor::f_cat(&parts, 0)?)
}

/// Splits hidden states and targets into chunks of [`chunk_rows`] tokens.
fn chunks(model: &Model, hidden: &Tensor, targets: &Tensor) -> Result<Vec<(Tensor, Tensor)>> {
    let size = chunk_rows(model.device(), model.config().vocab_size) as i64;
    let hidden_chunks = hidden.f_detach()?.f_split(size, 0)?;
    Ok(hidden_chunks.into_iter().zip(targets.f_split(size, 0)?).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny;

    #[test]
    fn fused_scores_match_autograd() {
        for (family, temperature) in [("llama", 0.7), ("qwen3", 1.0)] {
            let model = tiny(family, 3);
            let tokens = model.batch(&[&[1, 5, 2, 7, 11]]).unwrap();
            let hidden = (model.hidden(&tokens).unwrap().squeeze_dim(0) * 20.0)
                .detach()
                .set_requires_grad(true);
            let targets = Tensor::from_slice(&[3i64, 1, 4, 1, 22]);

            let reference =
                (model.logits(&hidden).unwrap() / temperature).log_softmax(-1, Kind::Float);
            let chosen = reference.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1);
            let entropy = -(reference.exp() * &reference).sum_dim_intlist(-1, false, Kind::Float);
            let total = chosen.sum(Kind::Float);
            let grad_hidden = Tensor::run_backward(&[total], &[&hidden], false, false).remove(0);

            let got = score(&model, &hidden, &targets, temperature).unwrap();
            let differ = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]);
            assert!(differ(&got.log_probs, &chosen.detach()) < 1e-5, "{family}");
            assert!(differ(&got.entropy, &entropy.detach()) < 1e-5, "{family}");
            assert!(differ(&got.grad_hidden, &grad_hidden) < 1e-5, "{family}");
            let alone = log_probs(&model, &hidden, &targets, temperature).unwrap();
            assert!(differ(&alone, &chosen.detach()) < 1e-5, "{family}");
        }
    }
}
