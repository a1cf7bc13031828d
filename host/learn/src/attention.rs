//! Grouped-query attention, for whole sequences and for one step over a cache.

use tch::Tensor;

use crate::cache::KvCache;
use crate::error::Result;
use crate::libtorch;
use crate::linear::{Linear, Linears};
use crate::packed::{Completions, Group, Packed};
use crate::prompts::PromptKeys;
use crate::rope::Angles;
use crate::weights::{Role, Weights};
use corver_pretrained::{Family, ModelConfig};

/// How a pass treats keys and values.
pub(crate) enum Pass<'a> {
    /// Whole sequences from position 0, causal.
    Whole,
    /// One further token per row.
    Step(&'a mut KvCache),
    /// Completions behind the prompt that they share, in one flat list.
    Packed(&'a Packed),
    /// The same, keeping each layer's keys and values.
    Prefill(&'a Packed, &'a mut PromptKeys),
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
    pub(crate) qkv: Linears<3>,
    pub(crate) o: Linears<1>,
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
            Family::Qwen3 => {
                norm(config.head_dim, config.head_dim).map(|(q, k)| QkNorm::PerHead(q, k))?
            }
            Family::Olmo2 => norm(q_width, kv_width).map(|(q, k)| QkNorm::Whole(q, k))?,
        };
        Ok(Self {
            qkv: Linears::new([
                Linear::build(name("q_proj"), q_width, d, biased, weights)?,
                Linear::build(name("k_proj"), kv_width, d, biased, weights)?,
                Linear::build(name("v_proj"), kv_width, d, biased, weights)?,
            ]),
            o: Linears::new([Linear::build(name("o_proj"), d, q_width, false, weights)?]),
            norm,
            num_heads: config.num_heads as i64,
            num_kv_heads: config.num_kv_heads as i64,
            head_dim: config.head_dim as i64,
            eps: config.norm_eps,
        })
    }

    /// `x` `[B, T, D]` → `[B, T, D]`; T is 1 in [`Pass::Step`].
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        angles: &Angles,
        pass: &mut Pass<'_>,
        layer: usize,
    ) -> Result<Tensor> {
        let (b, t, _) = x.size3()?;
        let [mut q, mut k, v] = self.qkv.forward(x)?;
        if let QkNorm::Whole(q_norm, k_norm) = &self.norm {
            (q, k) = (self.rms(&q, q_norm)?, self.rms(&k, k_norm)?);
        }
        let heads = |y: &Tensor, n: i64| y.f_reshape([b, t, n, self.head_dim]);
        (q, k) = (heads(&q, self.num_heads)?, heads(&k, self.num_kv_heads)?);
        if let QkNorm::PerHead(q_norm, k_norm) = &self.norm {
            (q, k) = (self.rms(&q, q_norm)?, self.rms(&k, k_norm)?);
        }
        let (q, k, v) = (angles.rotate(&q)?, angles.rotate(&k)?, heads(&v, self.num_kv_heads)?); // [B, T, heads, Dh]
        let mixed = match pass {
            Pass::Whole => self.causal(&q, &k, &v)?,
            Pass::Step(cache) => cache.attend(layer, &q, &k, &v)?,
            Pass::Packed(packed) => self.packed(&q, &k, &v, packed)?,
            Pass::Prefill(packed, kept) => {
                let mixed = self.packed(&q, &k, &v, packed)?;
                kept.push((k.f_squeeze_dim(0)?, v.f_squeeze_dim(0)?));
                mixed
            }
        };
        let [y] = self.o.forward(&mixed.f_reshape([b, t, self.num_heads * self.head_dim])?)?;
        Ok(y)
    }

    fn packed(&self, q: &Tensor, k: &Tensor, v: &Tensor, packed: &Packed) -> Result<Tensor> {
        let mixed = packed
            .groups
            .iter()
            .map(|group| self.group(q, k, v, group))
            .collect::<Result<Vec<_>>>()?;
        Ok(Tensor::f_cat(&mixed, 1)?)
    }

    /// One group's part of `q` `[1, N, H, Dh]`, `k` and `v` `[1, N, Hkv, Dh]` → `[1, n, H, Dh]`.
    fn group(&self, q: &Tensor, k: &Tensor, v: &Tensor, group: &Group) -> Result<Tensor> {
        let prompt = |x: &Tensor| x.f_narrow(1, group.start, group.prompt);
        let of_prompt = self.causal(&prompt(q)?, &prompt(k)?, &prompt(v)?)?;
        let Some(Completions { rows, longest, places, present, visible }) = &group.completions
        else {
            return Ok(of_prompt);
        };
        let as_rows = |x: &Tensor| -> Result<Tensor> {
            let heads = x.size()[2];
            Ok(x.f_index_select(1, places)?.f_view([*rows, *longest, heads, self.head_dim])?) // [R, T, heads, Dh]
        };
        let behind_prompt = |x: &Tensor| -> Result<Tensor> {
            let prompt = prompt(x)?.f_expand([*rows, -1, -1, -1], false)?;
            Ok(Tensor::f_cat(&[prompt, as_rows(x)?], 1)?) // [R, P + T, Hkv, Dh]
        };
        let (q, k, v) = (as_rows(q)?, behind_prompt(k)?, behind_prompt(v)?);
        let mixed = match libtorch::has_flash(q.f_kind()?, q.device()) {
            true => libtorch::flash(&q, &k, &v, true)?.0,
            false => self.attend(&q, &k, &v, Some(visible))?,
        };
        let flat = mixed.f_reshape([1, rows * longest, self.num_heads, self.head_dim])?;
        Ok(Tensor::f_cat(&[of_prompt, flat.f_index_select(1, present)?], 1)?)
    }

    /// `q` `[B, T, H, Dh]`, `k` and `v` `[B, T, Hkv, Dh]` → `[B, T, H, Dh]`.
    fn causal(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        self.attend(q, k, v, None)
    }

    /// Under a mask `[T, S]`, or causal.
    fn attend(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        visible: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (q, k, v) = (q.f_transpose(1, 2)?, k.f_transpose(1, 2)?, v.f_transpose(1, 2)?);
        let shared = self.num_heads != self.num_kv_heads;
        let mixed = Tensor::f_scaled_dot_product_attention(
            &q,
            &k,
            &v,
            visible,
            0.0,
            visible.is_none(),
            None,
            shared,
        )?;
        Ok(mixed.f_transpose(1, 2)?)
    }

    fn rms(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        Ok(x.f_rms_norm(weight.size(), Some(weight), self.eps)?)
    }

    pub(crate) fn norms(&self) -> Vec<(&'static str, &Tensor)> {
        match &self.norm {
            QkNorm::None => Vec::new(),
            QkNorm::PerHead(q, k) | QkNorm::Whole(q, k) => {
                vec![("q_norm.weight", q), ("k_norm.weight", k)]
            }
        }
    }
}
