//! Operations on rows of tokens that both encoders share.

use crate::onnx::graph::{Graph, ShapePart, Value, fixed, float, int, named};

/// Code of 32-bit integers in ONNX.
const INT32: i64 = 6;

/// The tokens of a run, which are inputs of the graph.
pub(super) struct TokenBatch {
    /// Token ids, `[B · N]`.
    pub(super) ids: Value,
    /// Attention mask, `[B, N]`: 1 for tokens, 0 for padding.
    mask: Value,
    /// Number of tokens per pair, N, `[1]`.
    pub(super) columns: Value,
    /// Number of pairs, B, `[1]`.
    rows: Value,
}

/// Queries, keys and values `[B · M, D]` of a layer. M is N, or 1 for the query of the first token.
pub(super) struct AttentionInputs<'a> {
    pub(super) query: &'a Value,
    pub(super) key: &'a Value,
    pub(super) value: &'a Value,
    /// Term that is added to the scores, `[B or 1, H, M, N]`.
    pub(super) bias: &'a Value,
    pub(super) num_heads: usize,
    pub(super) scale: f32,
}

impl TokenBatch {
    pub(super) fn new(graph: &mut Graph) -> Self {
        let shape = [named("rows"), named("tokens")];
        let ids = graph.int_input("input_ids", &shape);
        let mask = graph.int_input("attention_mask", &shape);
        let rows = graph.dimension(&ids, 0);
        let columns = graph.dimension(&ids, 1);
        let flat = graph.ints("flat", &[1], &[-1]);
        let ids = graph.op("Reshape", &[&ids, &flat]);
        let mask = graph.op_with("Cast", &[&mask], vec![int("to", INT32)]);
        Self { ids, mask, columns, rows }
    }

    /// Reshapes `[B · M, D]` to `[B, M, D]`.
    pub(super) fn by_row(&self, graph: &mut Graph, x: &Value, width: usize) -> Value {
        let shape = graph.shape(&[
            ShapePart::Is(&self.rows),
            ShapePart::Fixed(-1),
            ShapePart::Fixed(width as i64),
        ]);
        graph.op("Reshape", &[x, &shape])
    }

    /// Returns the first token of each row, `[B, D]` of `[B · N, D]`.
    pub(super) fn first(&self, graph: &mut Graph, x: &Value, width: usize) -> Value {
        let rows = self.by_row(graph, x, width);
        let first = graph.ints("first", &[], &[0]);
        graph.op_with("Gather", &[&rows, &first], vec![int("axis", 1)])
    }

    /// Returns the attention output, `[B · M, D]`.
    pub(super) fn attend(
        &self,
        graph: &mut Graph,
        layer: &AttentionInputs<'_>,
        width: usize,
    ) -> Value {
        let [query, key, value] =
            [layer.query, layer.key, layer.value].map(|x| self.by_row(graph, x, width));
        let inputs = [&query, &key, &value, &Value::none(), &self.mask, layer.bias];
        let attributes = vec![
            int("num_heads", layer.num_heads as i64),
            float("scale", layer.scale),
            // Score of a padding token.
            float("mask_filter_value", -1e9),
        ];
        let mixed = graph.microsoft("MultiHeadAttention", &inputs, attributes);
        let flat = graph.ints("flat", &[2], &[-1, width as i64]);
        graph.op("Reshape", &[&mixed, &flat])
    }
}

/// Returns x · Wᵀ for W `[out, in]` in the layout of the file, plus the bias if there is one.
pub(super) fn linear(
    graph: &mut Graph,
    name: &str,
    x: &Value,
    [input, out]: [usize; 2],
    has_bias: bool,
) -> Value {
    let weight = graph.weight(&format!("{name}.weight"), &[out, input]);
    let mut inputs = vec![x.clone(), weight];
    if has_bias {
        inputs.push(graph.weight(&format!("{name}.bias"), &[out]));
    }
    graph.op_with("Gemm", &inputs.iter().collect::<Vec<_>>(), vec![int("transB", 1)])
}

/// Adds the classifier, whose logits `[B, C]` are the graph's output.
pub(super) fn head(graph: &mut Graph, name: &str, x: &Value, [input, classes]: [usize; 2]) {
    let logits = linear(graph, name, x, [input, classes], true);
    graph.output("logits", "Identity", &[&logits], Vec::new(), &[named("rows"), fixed(classes)]);
}
