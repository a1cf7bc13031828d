//! HHEM-2.1: the encoder of flan-t5-base with a classifier of its tokens (Raffel et al. 2020,
//! `modeling_t5.py`).

use std::collections::BTreeMap;

use crate::onnx::graph::{Float, Graph, Size, Value, Written, float, int};

use super::batch::{Attention, Batch, head, linear};
use super::positions::Positions;

/// From this distance on, all positions are alike: `relative_attention_max_distance` of
/// flan-t5-base.
const MAX_DISTANCE: i64 = 128;
/// `layer_norm_epsilon` of flan-t5-base.
const EPSILON: f32 = 1e-6;
const ENCODER: &str = "t5.transformer.encoder";

/// The shape, which the published folder says nowhere but in its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct T5 {
    pub(crate) vocab_size: usize,
    width: usize,
    inner: usize,
    num_heads: usize,
    feed_forward: usize,
    num_layers: usize,
    buckets: usize,
}

impl T5 {
    /// From the shapes of the weights by their names; otherwise the name of one that is missing or
    /// has no such shape.
    pub(crate) fn of(weights: &BTreeMap<String, Vec<usize>>) -> Result<Self, String> {
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
        let is_layer = |n: &usize| {
            weights.contains_key(&format!("{ENCODER}.block.{n}.layer.0.layer_norm.weight"))
        };
        let num_layers = (0..).take_while(is_layer).count();
        if num_heads == 0 || !inner.is_multiple_of(num_heads) || buckets < 4 {
            return Err(bias);
        }
        Ok(Self { vocab_size, width, inner, num_heads, feed_forward, num_layers, buckets })
    }
}

const EMBEDDING: &str = "t5.transformer.shared.weight";

/// The graph for pairs of at most `most` tokens.
pub(crate) fn t5(shape: T5, classes: usize, most: usize) -> Written {
    let mut graph = Graph::new("hhem", Float::F32);
    let batch = Batch::new(&mut graph);
    let positions = Positions::new(&mut graph, &batch.columns, most, |distance| {
        bucket(shape.buckets, distance)
    });
    let embedding = graph.weight(EMBEDDING, &[shape.vocab_size, shape.width]);
    let mut x = graph.op("Gather", &[&embedding, &batch.ids]); // [B · N, D]
    let mut writer = Writer { graph, shape, batch };
    let bias = writer.bias(&positions);
    for layer in 0..shape.num_layers {
        x = writer.layer(layer, &x, &bias);
    }
    let x = writer.norm(&x, &format!("{ENCODER}.final_layer_norm"));
    head(&mut writer.graph, "t5.classifier", &x, [shape.width, classes]);
    writer.graph.finish()
}

/// `_relative_position_bucket` for both directions, of key minus query.
pub(super) fn bucket(buckets: usize, distance: i64) -> i64 {
    let half = buckets as i64 / 2;
    let exact = half / 2;
    let far = distance.abs();
    let ahead = if distance > 0 { half } else { 0 };
    if far < exact {
        return ahead + far;
    }
    // In f32, as there.
    let log = (far as f32 / exact as f32).ln() / ((MAX_DISTANCE as f64 / exact as f64).ln() as f32);
    let large = exact + (log * (half - exact) as f32) as i64;
    ahead + large.min(half - 1)
}

struct Writer {
    graph: Graph,
    shape: T5,
    batch: Batch,
}

/// What is added to the scores, for all queries `[1, H, N, N]` and for the first `[1, H, 1, N]`.
struct Bias {
    all: Value,
    first: Value,
}

impl Writer {
    fn bias(&mut self, positions: &Positions) -> Bias {
        let Self { graph, shape, batch } = self;
        let name =
            format!("{ENCODER}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let table = graph.weight(&name, &[shape.buckets, shape.num_heads]);
        let by_head = graph.op("Transpose", &[&table]);
        let of = graph.op_with("Gather", &[&by_head, &positions.rising], vec![int("axis", 1)]); // [H, 2N]
        let axes = graph.ints("axes", &[2], &[0, 2]);
        let of = graph.op("Unsqueeze", &[&of, &axes]);
        let rows = graph.shape(&[
            Size::Fixed(1),
            Size::Fixed(1),
            Size::Is(&batch.columns),
            Size::Fixed(1),
        ]);
        let of = graph.op("Expand", &[&of, &rows]); // [1, H, N, 2N]
        let all = positions.skew(graph, &of);
        let mut number = |n: i64| graph.ints("number", &[1], &[n]);
        let (zero, one, two) = (number(0), number(1), number(2));
        let first = graph.op("Slice", &[&all, &zero, &one, &two]);
        Bias { all, first }
    }

    /// `x` `[B · N, D]`; of the last layer, `[B, D]` comes out.
    fn layer(&mut self, layer: usize, x: &Value, bias: &Bias) -> Value {
        let T5 { width, inner, num_heads, num_layers, .. } = self.shape;
        let prefix = format!("{ENCODER}.block.{layer}.layer.0");
        let normed = self.norm(x, &format!("{prefix}.layer_norm"));
        let Self { graph, batch, .. } = self;
        let (x, asking, bias) = match layer + 1 == num_layers {
            true => (batch.first(graph, x, width), batch.first(graph, &normed, width), &bias.first),
            false => (x.clone(), normed.clone(), &bias.all),
        };
        let mut project = |part: &str, rows: &Value| {
            linear(graph, &format!("{prefix}.SelfAttention.{part}"), rows, [width, inner], false)
        };
        let [query, key, value] = [("q", &asking), ("k", &normed), ("v", &normed)]
            .map(|(part, rows)| project(part, rows));
        // Scores are not scaled.
        let attention =
            Attention { query: &query, key: &key, value: &value, bias, num_heads, scale: 1.0 };
        let mixed = batch.attend(graph, &attention, inner);
        let mixed =
            linear(graph, &format!("{prefix}.SelfAttention.o"), &mixed, [inner, width], false);
        let x = graph.op("Add", &[&x, &mixed]);
        let fed = self.feed_forward(layer, &x);
        self.graph.op("Add", &[&x, &fed])
    }

    fn feed_forward(&mut self, layer: usize, x: &Value) -> Value {
        let T5 { width, feed_forward, .. } = self.shape;
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
