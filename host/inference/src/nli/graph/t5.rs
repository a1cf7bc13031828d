//! HHEM-2.1: the encoder of flan-t5-base with a token classifier (Raffel et al. 2020,
//! `modeling_t5.py`).

use std::collections::BTreeMap;

use crate::onnx::graph::{CompletedGraph, Float, Graph, ShapePart, Value, float, int};

use super::batch::{AttentionInputs, TokenBatch, head, linear};
use super::positions::RelativePositions;

/// Distance from which on all positions share a row: `relative_attention_max_distance` of
/// flan-t5-base.
const MAX_DISTANCE: i64 = 128;
/// Epsilon of the norms: `layer_norm_epsilon` of flan-t5-base.
const EPSILON: f32 = 1e-6;
const ENCODER: &str = "t5.transformer.encoder";

/// The sizes of the encoder, which the published folder states only by the shapes of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct T5Shape {
    pub(crate) vocab_size: usize,
    width: usize,
    inner: usize,
    num_heads: usize,
    feed_forward: usize,
    num_layers: usize,
    buckets: usize,
}

impl T5Shape {
    /// Derives the sizes from the shapes of the weights. The error is the name of a weight that is
    /// missing or has an unexpected shape.
    pub(crate) fn from_weights(weights: &BTreeMap<String, Vec<usize>>) -> Result<Self, String> {
        let matrix = |name: &str| match weights.get(name).map(Vec::as_slice) {
            Some(&[rows, columns]) => Ok([rows, columns]),
            _ => Err(name.to_owned()),
        };
        let [vocab_size, width] = matrix(EMBEDDING)?;
        let [inner, _] = matrix(&format!("{ENCODER}.block.0.layer.0.SelfAttention.q.weight"))?;
        let bias =
            format!("{ENCODER}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let [buckets, num_heads] = matrix(&bias)?;
        let [feed_forward, _] =
            matrix(&format!("{ENCODER}.block.0.layer.1.DenseReluDense.wi_0.weight"))?;
        let mut num_layers = 0;
        while weights
            .contains_key(&format!("{ENCODER}.block.{num_layers}.layer.0.layer_norm.weight"))
        {
            num_layers += 1;
        }
        if num_heads == 0 || !inner.is_multiple_of(num_heads) || buckets < 4 {
            return Err(bias);
        }
        Ok(Self { vocab_size, width, inner, num_heads, feed_forward, num_layers, buckets })
    }
}

const EMBEDDING: &str = "t5.transformer.shared.weight";

/// Writes the graph for pairs of at most `max_tokens` tokens.
pub(crate) fn t5(shape: T5Shape, classes: usize, max_tokens: usize) -> CompletedGraph {
    let mut graph = Graph::new("hhem", Float::F32);
    let batch = TokenBatch::new(&mut graph);
    let positions = RelativePositions::new(&mut graph, &batch.columns, max_tokens, |distance| {
        bucket(shape.buckets, distance)
    });
    let embedding = graph.weight(EMBEDDING, &[shape.vocab_size, shape.width]);
    let mut x = graph.op("Gather", &[&embedding, &batch.ids]); // [B · N, D]
    let mut writer = T5Writer { graph, shape, batch };
    let bias = writer.bias(&positions);
    for layer in 0..shape.num_layers {
        x = writer.layer(layer, &x, &bias);
    }
    let x = writer.norm(&x, &format!("{ENCODER}.final_layer_norm"));
    head(&mut writer.graph, "t5.classifier", &x, [shape.width, classes]);
    writer.graph.finish()
}

/// Returns the table's row for a distance of key minus query: `_relative_position_bucket` for both
/// directions.
pub(super) fn bucket(buckets: usize, distance: i64) -> i64 {
    let half = buckets as i64 / 2;
    let exact = half / 2;
    let far = distance.abs();
    let ahead = if distance > 0 { half } else { 0 };
    if far < exact {
        return ahead + far;
    }
    // In f32, as in `transformers`: f64 would round some distances to another row.
    let log = (far as f32 / exact as f32).ln() / ((MAX_DISTANCE as f64 / exact as f64).ln() as f32);
    let large = exact + (log * (half - exact) as f32) as i64;
    ahead + large.min(half - 1)
}

struct T5Writer {
    graph: Graph,
    shape: T5Shape,
    batch: TokenBatch,
}

/// Terms that are added to the attention scores.
struct Bias {
    /// For all queries, `[1, H, N, N]`.
    full: Value,
    /// For the first query, `[1, H, 1, N]`.
    first: Value,
}

impl T5Writer {
    fn bias(&mut self, positions: &RelativePositions) -> Bias {
        let Self { graph, shape, batch } = self;
        let name =
            format!("{ENCODER}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let table = graph.weight(&name, &[shape.buckets, shape.num_heads]);
        let by_head = graph.op("Transpose", &[&table]);
        // [H, 2N]
        let row = graph.op_with("Gather", &[&by_head, &positions.rising], vec![int("axis", 1)]);
        let axes = graph.ints("axes", &[2], &[0, 2]);
        let row = graph.op("Unsqueeze", &[&row, &axes]);
        let rows = graph.shape(&[
            ShapePart::Fixed(1),
            ShapePart::Fixed(1),
            ShapePart::Is(&batch.columns),
            ShapePart::Fixed(1),
        ]);
        let expanded = graph.op("Expand", &[&row, &rows]); // [1, H, N, 2N]
        let full = positions.skew(graph, &expanded);
        let start = graph.ints("number", &[1], &[0]);
        let end = graph.ints("number", &[1], &[1]);
        let axis = graph.ints("number", &[1], &[2]);
        let first = graph.op("Slice", &[&full, &start, &end, &axis]);
        Bias { full, first }
    }

    /// Writes a layer. `x` and the result are `[B · N, D]`; the result of the last layer is `[B, D]`.
    fn layer(&mut self, layer: usize, x: &Value, bias: &Bias) -> Value {
        let T5Shape { width, inner, num_heads, num_layers, .. } = self.shape;
        let prefix = format!("{ENCODER}.block.{layer}.layer.0");
        let normed = self.norm(x, &format!("{prefix}.layer_norm"));
        let Self { graph, batch, .. } = self;
        let is_last = layer + 1 == num_layers;
        let x = if is_last { batch.first(graph, x, width) } else { x.clone() };
        let query_tokens =
            if is_last { batch.first(graph, &normed, width) } else { normed.clone() };
        let bias = if is_last { &bias.first } else { &bias.full };
        let mut project = |part: &str, rows: &Value| {
            linear(graph, &format!("{prefix}.SelfAttention.{part}"), rows, [width, inner], false)
        };
        let query = project("q", &query_tokens);
        let key = project("k", &normed);
        let value = project("v", &normed);
        // T5 does not scale its scores.
        let attention = AttentionInputs {
            query: &query,
            key: &key,
            value: &value,
            bias,
            num_heads,
            scale: 1.0,
        };
        let mixed = batch.attend(graph, &attention, inner);
        let mixed =
            linear(graph, &format!("{prefix}.SelfAttention.o"), &mixed, [inner, width], false);
        let x = graph.op("Add", &[&x, &mixed]);
        let fed = self.feed_forward(layer, &x);
        self.graph.op("Add", &[&x, &fed])
    }

    fn feed_forward(&mut self, layer: usize, x: &Value) -> Value {
        let T5Shape { width, feed_forward, .. } = self.shape;
        let prefix = format!("{ENCODER}.block.{layer}.layer.1");
        let normed = self.norm(x, &format!("{prefix}.layer_norm"));
        let graph = &mut self.graph;
        let [gate, up] = ["wi_0", "wi_1"].map(|part| {
            linear(
                graph,
                &format!("{prefix}.DenseReluDense.{part}"),
                &normed,
                [width, feed_forward],
                false,
            )
        });
        let gate = graph.microsoft("FastGelu", &[&gate], Vec::new()); // `gelu_new`
        let gated = graph.op("Mul", &[&gate, &up]);
        linear(graph, &format!("{prefix}.DenseReluDense.wo"), &gated, [feed_forward, width], false)
    }

    fn norm(&mut self, x: &Value, name: &str) -> Value {
        let weight = self.graph.weight(&format!("{name}.weight"), &[self.shape.width]);
        let attributes = vec![int("axis", -1), float("epsilon", EPSILON), int("stash_type", 1)];
        self.graph.op_with("SimplifiedLayerNormalization", &[x, &weight], attributes)
    }
}
