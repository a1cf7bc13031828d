//! Log-probabilities of given tokens, without ever holding logits for more than a few of them.
//!
//! The output layer is frozen, so the derivative of a token's log-probability by its hidden state
//! has a closed form, (W_y − Σ_v p_v W_v) / temperature: a vector of the hidden state's own size.
//! It is computed together with the log-probability, chunk by chunk; the loss then only needs its
//! chain rule through the hidden states, and nothing of size tokens × vocabulary outlives its
//! chunk.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::model::Model;

/// Places whose logits are there at the same time, in a handful of f32 tensors. 4 MiB stay in a
/// CPU's cache, but a product of few rows by a large vocabulary waits for the memory; a GPU wants
/// larger products.
pub(crate) fn chunk_rows(device: Device, vocab_size: usize) -> usize {
    let (elements, fewest) = if device.is_cuda() { (1 << 26, 1) } else { (1 << 20, 128) };
    (elements / vocab_size).max(fewest)
}

/// What is known of n tokens.
pub(crate) struct Scores {
    /// `[n]` f32, nats, at the given temperature.
    pub(crate) log_probs: Tensor,
    /// `[n]` f32, nats: of the whole distribution at each place.
    pub(crate) entropy: Tensor,
    /// `[n, D]` f32: derivative of each log-probability by its hidden state.
    pub(crate) slopes: Tensor,
}

/// Scores `targets` `[n]` i64 given the hidden states `[n, D]` before them. No graph is made.
pub(crate) fn score(
    model: &Model,
    hidden: &Tensor,
    targets: &Tensor,
    temperature: f64,
) -> Result<Scores> {
    let _guard = tch::no_grad_guard();
    let mut parts = (Vec::new(), Vec::new(), Vec::new());
    for (rows, row_targets) in chunks(model, hidden, targets)? {
        let log_probs =
            model.logits(&rows)?.f_div_scalar_(temperature)?.f_log_softmax(-1, Kind::Float)?; // [c, V]
        let places = row_targets.f_unsqueeze(1)?;
        parts.0.push(log_probs.f_gather(1, &places, false)?.f_squeeze_dim(1)?);
        let probs = log_probs.f_exp()?;
        parts.1.push(probs.f_mul(&log_probs)?.f_sum_dim_intlist(-1, false, Kind::Float)?.f_neg()?);
        drop(log_probs);
        let one = places.f_ones_like()?.f_to_kind(Kind::Float)?;
        let pull = probs.f_neg()?.f_scatter_add(1, &places, &one)?; // [c, V]: 1 at the target, less p everywhere
        let slope = pull.f_to_kind(model.kind())?.f_matmul(model.head_weight())?;
        parts.2.push(slope.f_to_kind(Kind::Float)?.f_div_scalar_(temperature)?);
    }
    Ok(Scores {
        log_probs: Tensor::f_cat(&parts.0, 0)?,
        entropy: Tensor::f_cat(&parts.1, 0)?,
        slopes: Tensor::f_cat(&parts.2, 0)?,
    })
}

/// As [`score`], the log-probabilities alone.
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

fn chunks(model: &Model, hidden: &Tensor, targets: &Tensor) -> Result<Vec<(Tensor, Tensor)>> {
    let size = chunk_rows(model.device(), model.config().vocab_size) as i64;
    let hidden = hidden.f_detach()?.f_split(size, 0)?;
    Ok(hidden.into_iter().zip(targets.f_split(size, 0)?).collect())
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
            let slopes = Tensor::run_backward(&[chosen.sum(Kind::Float)], &[&hidden], false, false)
                .remove(0);

            let got = score(&model, &hidden, &targets, temperature).unwrap();
            let differ = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]);
            assert!(differ(&got.log_probs, &chosen.detach()) < 1e-5, "{family}");
            assert!(differ(&got.entropy, &entropy.detach()) < 1e-5, "{family}");
            assert!(differ(&got.slopes, &slopes) < 1e-5, "{family}");
            let alone = log_probs(&model, &hidden, &targets, temperature).unwrap();
            assert!(differ(&alone, &chosen.detach()) < 1e-5, "{family}");
        }
    }
}
