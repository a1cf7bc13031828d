//! One layer of the decoder.

use tch::Tensor;

use crate::attention::Attention;
use crate::error::Result;
use crate::libtorch;
use crate::linear::{Linear, Linears};
use crate::weights::{Role, Weights};
use corver_pretrained::{Family, ModelConfig};

/// One decoder layer: attention and feed-forward, each with its norm and residual.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention: Attention,
    feed_forward: FeedForward,
    attention_norm: Tensor,
    feed_forward_norm: Tensor,
    /// Norms stand behind their block (OLMo-2) instead of before it.
    norm_behind: bool,
    eps: f64,
}

/// SwiGLU.
#[derive(Debug)]
struct FeedForward {
    gate_up: Linears<2>,
    down: Linears<1>,
}

impl Layer {
    pub(crate) fn build(config: &ModelConfig, n: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("model.layers.{n}");
        let (d, wide) = (config.hidden_size, config.intermediate_size);
        let norm_behind = config.family == Family::Olmo2;
        let attention = Attention::build(config, &prefix, weights)?;
        let feed_forward = FeedForward {
            gate_up: Linears::new([
                Linear::build(format!("{prefix}.mlp.gate_proj"), wide, d, false, weights)?,
                Linear::build(format!("{prefix}.mlp.up_proj"), wide, d, false, weights)?,
            ]),
            down: Linears::new([Linear::build(
                format!("{prefix}.mlp.down_proj"),
                d,
                wide,
                false,
                weights,
            )?]),
        };
        let [first, second] = norm_names(norm_behind);
        Ok(Self {
            attention,
            feed_forward,
            attention_norm: weights.take(&format!("{prefix}.{first}"), Role::Norm, &[d])?,
            feed_forward_norm: weights.take(&format!("{prefix}.{second}"), Role::Norm, &[d])?,
            norm_behind,
            eps: config.norm_eps,
        })
    }

    pub(crate) fn forward(
        &self,
        x: &Tensor,
        attend: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let norm = |hidden: &Tensor, weight| rms_norm(hidden, weight, self.eps);
        if self.norm_behind {
            let x = x.f_add(&norm(&attend(x)?, &self.attention_norm)?)?;
            return Ok(x.f_add(&norm(&self.feed_forward.forward(&x)?, &self.feed_forward_norm)?)?);
        }
        let x = x.f_add(&attend(&norm(x, &self.attention_norm)?)?)?;
        Ok(x.f_add(&self.feed_forward.forward(&norm(&x, &self.feed_forward_norm)?)?)?)
    }

    pub(crate) fn parameters<'a>(&'a self, n: usize, all: &mut Vec<(String, &'a Tensor)>) {
        let prefix = format!("model.layers.{n}");
        let [first, second] = norm_names(self.norm_behind);
        all.push((format!("{prefix}.{first}"), &self.attention_norm));
        all.push((format!("{prefix}.{second}"), &self.feed_forward_norm));
        all.extend(
            self.attention
                .norms()
                .into_iter()
                .map(|(name, t)| (format!("{prefix}.self_attn.{name}"), t)),
        );
        for linear in self.linears() {
            all.push((format!("{}.weight", linear.name), &linear.weight));
            all.extend(linear.bias.as_ref().map(|bias| (format!("{}.bias", linear.name), bias)));
        }
    }

    /// In the order of [`lora::TARGETS`](crate::lora::TARGETS).
    pub(crate) fn linears(&self) -> impl Iterator<Item = &Linear> {
        let (a, f) = (&self.attention, &self.feed_forward);
        a.qkv.each.iter().chain(&a.o.each).chain(&f.gate_up.each).chain(&f.down.each)
    }

    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        let (a, f) = (&mut self.attention, &mut self.feed_forward);
        a.qkv
            .each
            .iter_mut()
            .chain(&mut a.o.each)
            .chain(&mut f.gate_up.each)
            .chain(&mut f.down.each)
    }

    /// Until [`Layer::thaw`], the adapters are taken as they are now; without a graph.
    pub(crate) fn freeze(&self) -> Result<()> {
        let (a, f) = (&self.attention, &self.feed_forward);
        a.qkv.freeze()?;
        a.o.freeze()?;
        f.gate_up.freeze()?;
        f.down.freeze()
    }

    pub(crate) fn thaw(&self) {
        let (a, f) = (&self.attention, &self.feed_forward);
        a.qkv.thaw();
        a.o.thaw();
        f.gate_up.thaw();
        f.down.thaw();
    }
}

impl FeedForward {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = self.gate_up.forward(x)?;
        let [y] = self.down.forward(&libtorch::swiglu(&gate, &up)?)?;
        Ok(y)
    }
}

/// Hugging Face names of the attention's and the feed-forward block's norm.
fn norm_names(norm_behind: bool) -> [&'static str; 2] {
    match norm_behind {
        true => ["post_attention_layernorm.weight", "post_feedforward_layernorm.weight"],
        false => ["input_layernorm.weight", "post_attention_layernorm.weight"],
    }
}

pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    Ok(x.f_rms_norm(weight.size(), Some(weight), eps)?)
}
