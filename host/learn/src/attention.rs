//! Grouped-query attention, for whole sequences and for one step over a cache.

use tch::Tensor;

use crate::cache::KvCache;
use crate::config::{Family, ModelConfig};
use crate::error::Result;
use crate::linear::Linear;
use crate::packed::{Completions, Group, Packed};
use crate::rope::Angles;
use crate::weights::{Role, Weights};

/// How a pass treats keys and values.
pub(crate) enum Pass<'a> {
    /// Whole sequences from position 0, causal.
    Whole,
    /// The same, keeping each layer's keys and values.
    Prefill(&'a mut Vec<(Tensor, Tensor)>),
    /// One further token per row.
    Step(&'a mut KvCache),
    /// Completions behind the prompt that they share, in one flat list.
    Packed(&'a Packed),
}

/// RMS norm of queries and keys before the rotation.
#[derive(Debug)]
enum QkNorm {
    None,
    /// Over each head; `[head_dim]` (Qwen3).
    PerHead(Tensor, Tensor),
    /// Over all heads together (OLMo-2).
    Whole(Tensor, Tensor),
}

#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
    pub(crate) o: Linear,
    norm: QkNorm,
    num_heads: i64,
    num_kv_heads: i64,
    head_dim: i64,
    eps: f64,
}

impl Attention {
    pub(crate) fn build(config: &ModelConfig, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let (d, q_width) = (config.hidden_size, config.num_heads * config.head_dim);
        let kv_width = config.num_kv_heads * config.head_dim;
        let biased = config.family == Family::Qwen2;
        let name = |part: &str| format!("{prefix}.self_attn.{part}");
        let mut norm = |q: usize, k: usize| -> Result<_> {
            let q = weights.take(&name("q_norm.weight"), Role::Norm, &[q])?;
            Ok((q, weights.take(&name("k_norm.weight"), Role::Norm, &[k])?))
        };
        let norm = match config.family {
            Family::Llama | Family::Qwen2 => QkNorm::None,
            Family::Qwen3 => norm(config.head_dim, config.head_dim).map(|(q, k)| QkNorm::PerHead(q, k))?,
            Family::Olmo2 => norm(q_width, kv_width).map(|(q, k)| QkNorm::Whole(q, k))?,
        };
        Ok(Self {
            q: Linear::build(name("q_proj"), q_width, d, biased, weights)?,
            k: Linear::build(name("k_proj"), kv_width, d, biased, weights)?,
            v: Linear::build(name("v_proj"), kv_width, d, biased, weights)?,
            o: Linear::build(name("o_proj"), d, q_width, false, weights)?,
            norm,
            num_heads: config.num_heads as i64,
            num_kv_heads: config.num_kv_heads as i64,
            head_dim: config.head_dim as i64,
            eps: config.norm_eps,
        })
    }

    /// `x` `[B, T, D]` → `[B, T, D]`; T is 1 in [`Pass::Step`].
    pub(crate) fn forward(&self, x: &Tensor, angles: &Angles, pass: &mut Pass<'_>, layer: usize) -> Result<Tensor> {
        let (b, t, _) = x.size3()?;
        let (mut q, mut k, v) = (self.q.forward(x)?, self.k.forward(x)?, self.v.forward(x)?);
        if let QkNorm::Whole(q_norm, k_norm) = &self.norm {
            (q, k) = (self.rms(&q, q_norm)?, self.rms(&k, k_norm)?);
        }
        let heads = |y: &Tensor, n: i64| y.f_view([b, t, n, self.head_dim]);
        (q, k) = (heads(&q, self.num_heads)?, heads(&k, self.num_kv_heads)?);
        if let QkNorm::PerHead(q_norm, k_norm) = &self.norm {
            (q, k) = (self.rms(&q, q_norm)?, self.rms(&k, k_norm)?);
        }
        let q = angles.rotate(&q.f_transpose(1, 2)?)?; // [B, H, T, Dh]
        let k = angles.rotate(&k.f_transpose(1, 2)?)?; // [B, Hkv, T, Dh]
        let v = heads(&v, self.num_kv_heads)?.f_transpose(1, 2)?;
        let mixed = match pass {
            Pass::Whole => self.causal(&q, &k, &v)?,
            Pass::Prefill(kept) => {
                let mixed = self.causal(&q, &k, &v)?;
                kept.push((k, v));
                mixed
            }
            Pass::Step(cache) => {
                let (keys, values) = cache.append(layer, &k, &v)?;
                // The query heads that share a key head become its query rows: exact, and nothing is repeated.
                let grouped = q.f_reshape([b, self.num_kv_heads, self.num_heads / self.num_kv_heads, self.head_dim])?;
                let mixed = Tensor::f_scaled_dot_product_attention(
                    &grouped,
                    &keys,
                    &values,
                    cache.visible()?,
                    0.0,
                    false,
                    None,
                    false,
                )?;
                mixed.f_reshape([b, self.num_heads, 1, self.head_dim])?
            }
            Pass::Packed(packed) => {
                let mixed =
                    packed.groups.iter().map(|group| self.group(&q, &k, &v, group)).collect::<Result<Vec<_>>>()?;
                Tensor::f_cat(&mixed, 2)?
            }
        };
        let mixed = mixed.f_transpose(1, 2)?.f_reshape([b, t, self.num_heads * self.head_dim])?;
        self.o.forward(&mixed)
    }

    /// One group's part of `q` `[1, H, N, Dh]`, `k` and `v` `[1, Hkv, N, Dh]` → `[1, H, n, Dh]`.
    fn group(&self, q: &Tensor, k: &Tensor, v: &Tensor, group: &Group) -> Result<Tensor> {
        let prompt = |x: &Tensor| x.f_narrow(2, group.start, group.prompt);
        let of_prompt = self.causal(&prompt(q)?, &prompt(k)?, &prompt(v)?)?;
        let Some(Completions { rows, longest, places, present, visible }) = &group.completions else {
            return Ok(of_prompt);
        };
        let as_rows = |x: &Tensor| -> Result<Tensor> {
            let picked = x.f_index_select(2, places)?;
            Ok(picked.f_view([x.size()[1], *rows, *longest, self.head_dim])?.f_transpose(0, 1)?) // [R, heads, T, Dh]
        };
        let behind_prompt = |x: &Tensor| -> Result<Tensor> {
            let prompt = prompt(x)?.f_expand([*rows, -1, -1, -1], false)?;
            Ok(Tensor::f_cat(&[prompt, as_rows(x)?], 2)?) // [R, Hkv, P + T, Dh]
        };
        let mixed = Tensor::f_scaled_dot_product_attention(
            &as_rows(q)?,
            &behind_prompt(k)?,
            &behind_prompt(v)?,
            Some(visible),
            0.0,
            false,
            None,
            self.num_heads != self.num_kv_heads,
        )?;
        let flat = mixed.f_transpose(0, 1)?.f_reshape([1, self.num_heads, rows * longest, self.head_dim])?;
        Ok(Tensor::f_cat(&[of_prompt, flat.f_index_select(2, present)?], 2)?)
    }

    fn causal(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let shared = self.num_heads != self.num_kv_heads;
        Ok(Tensor::f_scaled_dot_product_attention(q, k, v, None::<&Tensor>, 0.0, true, None, shared)?)
    }

    fn rms(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        Ok(x.f_rms_norm(weight.size(), Some(weight), self.eps)?)
    }

    pub(crate) fn norms(&self) -> Vec<(&'static str, &Tensor)> {
        match &self.norm {
            QkNorm::None => Vec::new(),
            QkNorm::PerHead(q, k) | QkNorm::Whole(q, k) => vec![("q_norm.weight", q), ("k_norm.weight", k)],
        }
    }
}
