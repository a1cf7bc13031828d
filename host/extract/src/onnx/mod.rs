//! Writes a decoder as an ONNX model, in the form that this crate runs: with a key–value cache, as Optimum exports.

mod decoder;
mod graph;
mod proto;

pub use decoder::encode_decoder;

/// The sizes of a Qwen2 decoder: biases on q, k and v, RMS norms before the blocks, a gated SiLU feed-forward block,
/// plain rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderShape {
    /// V, rows of the embedding.
    pub vocab_size: usize,
    /// D, width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_layers: usize,
    /// H, query heads.
    pub num_heads: usize,
    /// Hkv, key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Dh, width of one head; even.
    pub head_dim: usize,
    /// ε of every RMS norm.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// The output layer is the embedding.
    pub tie_embeddings: bool,
}

/// A weight as Hugging Face stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// A linear layer is `[out, in]`.
    pub shape: Vec<usize>,
    /// Row-major, as many as `shape` says.
    pub values: Vec<f32>,
}

/// Why a decoder cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// Sizes that do not fit together.
    #[error("decoder shape: expected {expected}, got {got}")]
    Shape {
        /// What fits.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// The model has no such weight, or one of another shape: it is not a Qwen2 decoder of these sizes.
    #[error("weight `{name}` of a Qwen2 decoder: expected shape {expected:?}, got {got}")]
    Weight {
        /// Its Hugging Face name.
        name: String,
        /// The shape that the decoder needs.
        expected: Vec<usize>,
        /// What is there.
        got: String,
    },
    /// The weight cannot be read.
    #[error("cannot read weight `{name}`: {source}")]
    Read {
        /// Its Hugging Face name.
        name: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl DecoderShape {
    fn check(&self) -> Result<(), OnnxError> {
        let wrong = |expected, got| Err(OnnxError::Shape { expected, got });
        let sizes = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.num_layers,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
        ];
        if sizes.contains(&0) {
            return wrong("sizes above 0", format!("{sizes:?}"));
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return wrong(
                "num_heads to be a multiple of num_kv_heads",
                format!("{} and {}", self.num_heads, self.num_kv_heads),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            return wrong("an even head_dim", self.head_dim.to_string());
        }
        Ok(())
    }
}
