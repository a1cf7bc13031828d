//! One layer of the decoder.

use tch::Tensor;

use crate::attention::SelfAttention;
use crate::error::Result;
use crate::libtorch::{self, rms_norm};
use crate::linear::{LinearGroup, LinearLayer};
use crate::weights::{WeightRole, Weights};
use corver_pretrained::{ModelConfig, ModelFamily};

/// One decoder layer: attention and feed-forward, each with its norm and residual.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention: SelfAttention,
    feed_forward: FeedForward,
    attention_norm: Tensor,
    feed_forward_norm: Tensor,
    /// True if norms come after their block (OLMo-2) instead of before it.
    is_post_norm: bool,
    eps: f64,
}

/// The SwiGLU block.
#[derive(Debug)]
struct FeedForward {
    gate_up: LinearGroup<2>,
    down: LinearGroup<1>,
}

impl Layer {
    /// Takes the weights of layer `n`.
    pub(crate) fn build(config: &ModelConfig, n: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("model.layers.{n}");
        let d = config.hidden_size;
        let f = config.intermediate_size;
        let is_post_norm = config.family == ModelFamily::Olmo2;
        let attention = SelfAttention::build(config, &prefix, weights)?;
        let gate = LinearLayer::build(format!("{prefix}.mlp.gate_proj"), f, d, false, weights)?;
        let up = LinearLayer::build(format!("{prefix}.mlp.up_proj"), f, d, false, weights)?;
        let down = LinearLayer::build(format!("{prefix}.mlp.down_proj"), d, f, false, weights)?;
        let [first, second] = norm_names(is_post_norm);
        Ok(Self {
            attention,
            feed_forward: FeedForward {
                gate_up: LinearGroup::new([gate, up])?,
                down: LinearGroup::new([down])?,
            },
            attention_norm: weights.take(&format!("{prefix}.{first}"), WeightRole::Norm, &[d])?,
            feed_forward_norm: weights.take(
                &format!("{prefix}.{second}"),
                WeightRole::Norm,
                &[d],
            )?,
            is_post_norm,
            eps: config.norm_eps,
        })
    }

    /// `x` `[B, T, D]` → `[B, T, D]`; `attend` is the attention of this layer, without its output
    /// projection.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        attend: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let attention_output = &self.attention.o;
        if self.is_post_norm {
            let [mixed] = attention_output.forward(&attend(&x)?)?;
            let hidden = x.f_add(&rms_norm(&mixed, &self.attention_norm, self.eps)?)?;
            let product = self.feed_forward.product(&hidden)?;
            let [output] = self.feed_forward.down.forward(&product)?;
            return Ok(hidden.f_add(&rms_norm(&output, &self.feed_forward_norm, self.eps)?)?);
        }
        let mixed = attend(&rms_norm(&x, &self.attention_norm, self.eps)?)?;
        let hidden = attention_output.add_to(x, &mixed)?;
        let normed = rms_norm(&hidden, &self.feed_forward_norm, self.eps)?;
        let product = self.feed_forward.product(&normed)?;
        self.feed_forward.down.add_to(hidden, &product)
    }

    /// Appends the base weights of this layer, number `n`, with their Hugging Face names.
    pub(crate) fn push_parameters<'a>(
        &'a self,
        n: usize,
        parameters: &mut Vec<(String, &'a Tensor)>,
    ) {
        let prefix = format!("model.layers.{n}");
        let [first, second] = norm_names(self.is_post_norm);
        parameters.push((format!("{prefix}.{first}"), &self.attention_norm));
        parameters.push((format!("{prefix}.{second}"), &self.feed_forward_norm));
        for (name, tensor) in self.attention.norms() {
            parameters.push((format!("{prefix}.self_attn.{name}"), tensor));
        }
        for linear in self.linears() {
            parameters.push((format!("{}.weight", linear.name), &linear.weight));
            if let Some(bias) = &linear.bias {
                parameters.push((format!("{}.bias", linear.name), bias));
            }
        }
    }

    /// Returns the projections in the order of [`lora::TARGETS`](crate::lora::TARGETS).
    pub(crate) fn linears(&self) -> impl Iterator<Item = &LinearLayer> {
        let Self { attention, feed_forward, .. } = self;
        attention
            .qkv
            .linears
            .iter()
            .chain(&attention.o.linears)
            .chain(&feed_forward.gate_up.linears)
            .chain(&feed_forward.down.linears)
    }

    /// Returns the projections in the order of [`Layer::linears`].
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearLayer> {
        let Self { attention, feed_forward, .. } = self;
        attention
            .qkv
            .linears
            .iter_mut()
            .chain(&mut attention.o.linears)
            .chain(&mut feed_forward.gate_up.linears)
            .chain(&mut feed_forward.down.linears)
    }

    /// Fixes the adapters until [`Layer::thaw_adapters`]; see [`LinearGroup::freeze_adapters`].
    pub(crate) fn freeze_adapters(&self) -> Result<()> {
        self.attention.qkv.freeze_adapters()?;
        self.attention.o.freeze_adapters()?;
        self.feed_forward.gate_up.freeze_adapters()?;
        self.feed_forward.down.freeze_adapters()
    }

    /// Makes changes of the adapters effective again.
    pub(crate) fn thaw_adapters(&self) {
        self.attention.qkv.thaw_adapters();
        self.attention.o.thaw_adapters();
        self.feed_forward.gate_up.thaw_adapters();
        self.feed_forward.down.thaw_adapters();
    }
}

impl FeedForward {
    /// Returns SiLU(gate) × up of `x` `[B, T, D]`, which `down` projects.
    fn product(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = self.gate_up.forward(x)?;
        libtorch::swiglu(&gate, &up)
    }
}

/// Returns the Hugging Face names of the attention's and the feed-forward block's norm.
fn norm_names(is_post_norm: bool) -> [&'static str; 2] {
    match is_post_norm {
        true => ["post_attention_layernorm.weight", "post_feedforward_layernorm.weight"],
        false => ["input_layernorm.weight", "post_attention_layernorm.weight"],
    }
}
