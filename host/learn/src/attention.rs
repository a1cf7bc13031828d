//! Grouped-query attention: over full sequences, over prompts with their completions, and for one
//! decoding step over a cache.

use tch::Tensor;

use crate::cache::KvCache;
use crate::error::Result;
use crate::libtorch;
use crate::linear::{LinearGroup, LinearLayer};
use crate::packed::{Packed, PackedLayout, Sequences, SiblingRows};
use crate::prompts::PromptKeys;
use crate::rope::Angles;
use crate::weights::{WeightRole, Weights};
use corver_pretrained::{ModelConfig, ModelFamily};

/// Layout of a forward pass, which decides the attention.
pub(crate) enum Pass<'a> {
    /// Sequences `[B, T]` from position 0, causal.
    Full,
    /// One more token per row.
    Step(&'a mut KvCache),
    /// Prompts with their completions, in one flat list.
    Packed(&'a Packed),
    /// A packed pass that saves each layer's keys and values.
    Prefill(&'a Packed, &'a mut PromptKeys),
}

/// RMS norm of queries and keys before the rotation.
#[derive(Debug)]
enum QkNorm {
    None,
    /// Over each head; weights `[head_dim]` (Qwen3).
    PerHead(Tensor, Tensor),
    /// Over all heads together (OLMo-2).
    AllHeads(Tensor, Tensor),
}

/// Self-attention of one layer.
#[derive(Debug)]
pub(crate) struct SelfAttention {
    pub(crate) qkv: LinearGroup<3>,
    pub(crate) o: LinearGroup<1>,
    norm: QkNorm,
    num_heads: i64,
    num_kv_heads: i64,
    head_dim: i64,
    eps: f64,
}

impl SelfAttention {
    pub(crate) fn build(config: &ModelConfig, layer: &str, weights: &mut Weights) -> Result<Self> {
        let d = config.hidden_size;
        let q_width = config.num_heads * config.head_dim;
        let kv_width = config.num_kv_heads * config.head_dim;
        let has_bias = config.family == ModelFamily::Qwen2;
        let prefix = format!("{layer}.self_attn");
        let norm = match config.family {
            ModelFamily::Llama | ModelFamily::Qwen2 => QkNorm::None,
            ModelFamily::Qwen3 => {
                let [q, k] = qk_norm_weights(&prefix, [config.head_dim; 2], weights)?;
                QkNorm::PerHead(q, k)
            }
            ModelFamily::Olmo2 => {
                let [q, k] = qk_norm_weights(&prefix, [q_width, kv_width], weights)?;
                QkNorm::AllHeads(q, k)
            }
        };
        Ok(Self {
            qkv: LinearGroup::new([
                LinearLayer::build(format!("{prefix}.q_proj"), q_width, d, has_bias, weights)?,
                LinearLayer::build(format!("{prefix}.k_proj"), kv_width, d, has_bias, weights)?,
                LinearLayer::build(format!("{prefix}.v_proj"), kv_width, d, has_bias, weights)?,
            ])?,
            o: LinearGroup::new([LinearLayer::build(
                format!("{prefix}.o_proj"),
                d,
                q_width,
                false,
                weights,
            )?])?,
            norm,
            num_heads: config.num_heads as i64,
            num_kv_heads: config.num_kv_heads as i64,
            head_dim: config.head_dim as i64,
            eps: config.norm_eps,
        })
    }

    /// `x` `[B, T, D]` → the mixed values `[B, T, H · Dh]`, which `o` projects; T is 1 in
    /// [`Pass::Step`].
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        angles: &Angles,
        pass: &mut Pass<'_>,
        layer: usize,
    ) -> Result<Tensor> {
        let (b, t, _) = x.size3()?;
        let ([q, k, v], joint) = self.qkv.forward_joint(x)?;
        let v = v.f_reshape([b, t, self.num_kv_heads, self.head_dim])?;
        if let Pass::Step(cache) = pass
            && cache.is_fused()
        {
            let (q, k) = self.normed_heads(q, k, b, t)?;
            return cache.attend_fused(layer, [&q, &k, &v], angles);
        }
        let next_keys = match pass {
            Pass::Step(cache) => Some(cache.next_keys(layer)?),
            Pass::Full | Pass::Packed(_) | Pass::Prefill(..) => None,
        };
        let (q, k) = match (&self.norm, joint) {
            (QkNorm::None, Some(joint)) => {
                let heads = joint.f_reshape([b, t, -1, self.head_dim])?;
                let (num_heads, num_kv_heads) = (self.num_heads, self.num_kv_heads);
                angles.rotate_both(&heads, num_heads, num_kv_heads, next_keys.as_ref())?
            }
            _ => {
                let (q, k) = self.normed_heads(q, k, b, t)?;
                let k = angles.rotate(&k)?;
                if let Some(mut next_keys) = next_keys {
                    next_keys.f_copy_(&k)?;
                }
                (angles.rotate(&q)?, k)
            }
        };
        let mixed = match pass {
            Pass::Full => self.attend(&q, &k, &v, None)?,
            Pass::Step(cache) => cache.attend(layer, &q, &v)?,
            Pass::Packed(packed) => self.attend_packed(&q, &k, &v, packed)?,
            Pass::Prefill(packed, keys) => {
                let mixed = self.attend_packed(&q, &k, &v, packed)?;
                // Values are a part of a product with more columns, which is not needed any more.
                let values = v.f_squeeze_dim(0)?.f_contiguous()?;
                keys.push((k.f_squeeze_dim(0)?, values));
                mixed
            }
        };
        Ok(mixed.f_reshape([b, t, self.num_heads * self.head_dim])?)
    }

    /// Splits queries and keys `[B, T, …]` into heads, normed.
    fn normed_heads(
        &self,
        mut q: Tensor,
        mut k: Tensor,
        b: i64,
        t: i64,
    ) -> Result<(Tensor, Tensor)> {
        if let QkNorm::AllHeads(q_norm, k_norm) = &self.norm {
            q = self.rms_norm(&q, q_norm)?;
            k = self.rms_norm(&k, k_norm)?;
        }
        q = q.f_reshape([b, t, self.num_heads, self.head_dim])?;
        k = k.f_reshape([b, t, self.num_kv_heads, self.head_dim])?;
        if let QkNorm::PerHead(q_norm, k_norm) = &self.norm {
            q = self.rms_norm(&q, q_norm)?;
            k = self.rms_norm(&k, k_norm)?;
        }
        Ok((q, k))
    }

    /// Attends within the sequences of `q` `[1, N, H, Dh]`, `k` and `v` `[1, N, Hkv, Dh]`.
    pub(crate) fn attend_packed(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        packed: &Packed,
    ) -> Result<Tensor> {
        match &packed.layout {
            PackedLayout::Sequences(sequences) => attend_sequences(q, k, v, sequences),
            PackedLayout::Rows(rows) => {
                let mut mixed = Vec::with_capacity(rows.len());
                for siblings in rows {
                    mixed.push(self.attend_siblings(q, k, v, siblings)?);
                }
                Ok(Tensor::f_cat(&mixed, 1)?)
            }
        }
    }

    /// Attends within siblings of the flat list → `[1, n, H, Dh]`.
    fn attend_siblings(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        siblings: &SiblingRows,
    ) -> Result<Tensor> {
        let row_q = siblings.rows_of(q)?; // [R, T, H, Dh]
        let row_k = siblings.rows_with_context(k)?; // [R, C + T, Hkv, Dh]
        let row_v = siblings.rows_with_context(v)?;
        let mixed = self.attend(&row_q, &row_k, &row_v, siblings.visible.as_ref())?;
        siblings.flatten(&mixed)
    }

    /// Attends under a mask `[T, S]`, or causally without one: `q` `[B, T, H, Dh]`, `k` and `v`
    /// `[B, S, Hkv, Dh]` → `[B, T, H, Dh]`.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let shares_keys = self.num_heads != self.num_kv_heads;
        let mixed = Tensor::f_scaled_dot_product_attention(
            &q.f_transpose(1, 2)?,
            &k.f_transpose(1, 2)?,
            &v.f_transpose(1, 2)?,
            mask,
            0.0,
            mask.is_none(),
            None,
            shares_keys,
        )?;
        Ok(mixed.f_transpose(1, 2)?)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        libtorch::rms_norm(x, weight, self.eps)
    }

    /// Returns the weights of the norms, with the ends of their Hugging Face names.
    pub(crate) fn norms(&self) -> Vec<(&'static str, &Tensor)> {
        match &self.norm {
            QkNorm::None => Vec::new(),
            QkNorm::PerHead(q, k) | QkNorm::AllHeads(q, k) => {
                vec![("q_norm.weight", q), ("k_norm.weight", k)]
            }
        }
    }
}

/// Attends within the sequences of the flat list, in one call.
fn attend_sequences(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &Sequences) -> Result<Tensor> {
    let Sequences { query_starts, key_starts, .. } = sequences;
    let keys = sequences.keys_of(k)?;
    let values = sequences.keys_of(v)?;
    let queries = q.f_squeeze_dim(0)?;
    let (mixed, _) =
        libtorch::flash_packed(&queries, query_starts, &keys, &values, key_starts, true)?;
    Ok(mixed.f_unsqueeze(0)?)
}

/// Takes the norm weights of queries and keys.
fn qk_norm_weights(prefix: &str, widths: [usize; 2], weights: &mut Weights) -> Result<[Tensor; 2]> {
    let [q_width, k_width] = widths;
    let q = weights.take(&format!("{prefix}.q_norm.weight"), WeightRole::Norm, &[q_width])?;
    let k = weights.take(&format!("{prefix}.k_norm.weight"), WeightRole::Norm, &[k_width])?;
    Ok([q, k])
}
