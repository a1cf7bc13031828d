//! DeBERTa-v3 for sequence classification, with disentangled attention (He et al. 2021;
//! `modeling_deberta_v2.py`).
//!
//! An attention score is the sum of three products, divided by √(3 Dh): query with key, query with
//! distance (“c2p”), and key with distance (“p2c”).

use crate::onnx::graph::{CompletedGraph, Float, Graph, Value, float, int};

use super::batch::{AttentionInputs, TokenBatch, head, linear};
use super::positions::RelativePositions;
use crate::nli::config::Deberta;

/// Writes the graph for pairs of at most `max_tokens` tokens.
pub(crate) fn deberta(config: &Deberta, classes: usize, max_tokens: usize) -> CompletedGraph {
    let mut graph = Graph::new("deberta", Float::F32);
    let batch = TokenBatch::new(&mut graph);
    let positions = RelativePositions::new(&mut graph, &batch.columns, max_tokens, |distance| {
        bucket(config.position_buckets, config.max_distance, distance)
    });
    let width = config.hidden_size;
    let embedding =
        graph.weight("deberta.embeddings.word_embeddings.weight", &[config.vocab_size, width]);
    let x = graph.op("Gather", &[&embedding, &batch.ids]); // [B · N, D]
    let mut writer = DebertaWriter { graph, config, batch, positions };
    let mut x = writer.norm(&x, "deberta.embeddings.LayerNorm");
    let distances = writer
        .graph
        .weight("deberta.encoder.rel_embeddings.weight", &[2 * config.position_buckets, width]);
    let distances = writer.norm(&distances, "deberta.encoder.LayerNorm");
    for layer in 0..config.num_hidden_layers {
        x = writer.layer(layer, &x, &distances);
    }
    let mut body = writer.graph;
    let pooled = linear(&mut body, "pooler.dense", &x, [width, width], true);
    let pooled = body.microsoft("Gelu", &[&pooled], Vec::new());
    head(&mut body, "classifier", &pooled, [width, classes]);
    body.finish()
}

/// Returns the table's row for a distance of query minus key: `make_log_bucket_position`, plus the
/// offset of `disentangled_attention_bias`.
pub(super) fn bucket(buckets: usize, max_distance: usize, distance: i64) -> i64 {
    let span = buckets as i64;
    let middle = span / 2;
    let far = distance.abs();
    let step = if far <= middle {
        distance
    } else {
        // In f32, as in `transformers`: f64 would round some distances to another row.
        let log =
            (far as f32 / middle as f32).ln() / ((max_distance - 1) as f32 / middle as f32).ln();
        distance.signum() * ((log * (middle - 1) as f32).ceil() as i64 + middle)
    };
    (step + span).clamp(0, 2 * span - 1)
}

struct DebertaWriter<'a> {
    graph: Graph,
    config: &'a Deberta,
    batch: TokenBatch,
    positions: RelativePositions,
}

impl DebertaWriter<'_> {
    /// Writes a layer. `x` is `[B · N, D]`, `distances` `[2 · buckets, D]`, and the result `[B · N,
    /// D]`; that of the last layer is `[B, D]`.
    fn layer(&mut self, layer: usize, x: &Value, distances: &Value) -> Value {
        let width = self.config.hidden_size;
        let wide = self.config.intermediate_size;
        let prefix = format!("deberta.encoder.layer.{layer}");
        let is_last = layer + 1 == self.config.num_hidden_layers;
        let query_tokens =
            if is_last { self.batch.first(&mut self.graph, x, width) } else { x.clone() };
        let mut project = |part: &str, rows: &Value| {
            linear(
                &mut self.graph,
                &format!("{prefix}.attention.self.{part}_proj"),
                rows,
                [width, width],
                true,
            )
        };
        let query = project("query", &query_tokens);
        let key = project("key", x);
        let value = project("value", x);
        let distance_queries = project("query", distances);
        let distance_keys = project("key", distances);
        let scale = 1.0 / (3.0 * self.head_dim() as f32).sqrt();
        let distance_queries = self.table(&distance_queries, scale);
        let distance_keys = self.table(&distance_keys, scale);
        let bias = if is_last {
            self.bias_of_first(&query, &key, &distance_queries, &distance_keys)
        } else {
            self.bias(&query, &key, &distance_queries, &distance_keys)
        };
        let num_heads = self.config.num_attention_heads;
        let attention = AttentionInputs {
            query: &query,
            key: &key,
            value: &value,
            bias: &bias,
            num_heads,
            scale,
        };
        let mixed = self.batch.attend(&mut self.graph, &attention, width);
        let mixed = linear(
            &mut self.graph,
            &format!("{prefix}.attention.output.dense"),
            &mixed,
            [width, width],
            true,
        );
        let mixed = self.graph.op("Add", &[&mixed, &query_tokens]);
        let attended = self.norm(&mixed, &format!("{prefix}.attention.output.LayerNorm"));
        let fed = linear(
            &mut self.graph,
            &format!("{prefix}.intermediate.dense"),
            &attended,
            [width, wide],
            true,
        );
        let fed = self.graph.microsoft("Gelu", &[&fed], Vec::new());
        let fed =
            linear(&mut self.graph, &format!("{prefix}.output.dense"), &fed, [wide, width], true);
        let fed = self.graph.op("Add", &[&fed, &attended]);
        self.norm(&fed, &format!("{prefix}.output.LayerNorm"))
    }

    fn head_dim(&self) -> usize {
        self.config.hidden_size / self.config.num_attention_heads
    }

    /// Arranges the queries or keys of all distances as `[H, 2 · buckets, Dh]`, and scales them.
    fn table(&mut self, table: &Value, scale: f32) -> Value {
        let heads = self.config.num_attention_heads as i64;
        let dim = self.head_dim() as i64;
        let shape = self.graph.ints("by_head", &[3], &[-1, heads, dim]);
        let scale = self.graph.floats("scale", &[], &[scale]);
        let table = self.graph.op("Reshape", &[table, &shape]);
        let table = self.graph.transpose(&table, &[1, 0, 2]);
        self.graph.op("Mul", &[&table, &scale])
    }

    /// Rearranges `[B · M, D]` as `[B, H, M, Dh]`.
    fn by_head(&mut self, x: &Value) -> Value {
        let heads = self.config.num_attention_heads as i64;
        let dim = self.head_dim() as i64;
        let rows = self.batch.by_row(&mut self.graph, x, self.config.hidden_size);
        let shape = self.graph.ints("by_head", &[4], &[0, 0, heads, dim]);
        let by_token = self.graph.op("Reshape", &[&rows, &shape]);
        self.graph.transpose(&by_token, &[0, 2, 1, 3])
    }

    /// Returns the sum of “c2p” and “p2c”, `[B, H, N, N]`.
    fn bias(
        &mut self,
        query: &Value,
        key: &Value,
        distance_queries: &Value,
        distance_keys: &Value,
    ) -> Value {
        let query = self.by_head(query);
        let key = self.by_head(key);
        let Self { graph, positions, .. } = self;
        let mut products = |x: &Value, table: &Value, distances: &Value| {
            // [H, 2N, Dh]
            let rows = graph.op_with("Gather", &[table, distances], vec![int("axis", 1)]);
            let columns = graph.transpose(&rows, &[0, 2, 1]);
            let products = graph.op("MatMul", &[x, &columns]); // [B, H, N, 2N]
            positions.skew(graph, &products)
        };
        // A distance is query minus key: it falls along a query's row, and rises along a key's row.
        let to_distance = products(&query, distance_keys, &positions.falling);
        let from_distance = products(&key, distance_queries, &positions.rising);
        let from_distance = graph.transpose(&from_distance, &[0, 1, 3, 2]);
        graph.op("Add", &[&to_distance, &from_distance])
    }

    /// Returns the same sum for the queries `[B, D]` of the first tokens, `[B, H, 1, N]`.
    fn bias_of_first(
        &mut self,
        query: &Value,
        key: &Value,
        distance_queries: &Value,
        distance_keys: &Value,
    ) -> Value {
        let query = self.by_head(query);
        let key = self.by_head(key);
        let Self { graph, positions, .. } = self;
        let [distance_queries, distance_keys] = [distance_queries, distance_keys].map(|table| {
            graph.op_with("Gather", &[table, &positions.of_first], vec![int("axis", 1)])
        }); // [H, N, Dh]
        let columns = graph.transpose(&distance_keys, &[0, 2, 1]);
        let to_distance = graph.op("MatMul", &[&query, &columns]);
        let products = graph.op("Mul", &[&key, &distance_queries]);
        let axis = graph.ints("axis", &[1], &[-1]);
        // [B, H, N]
        let sums = graph.op_with("ReduceSum", &[&products, &axis], vec![int("keepdims", 0)]);
        let columns_axis = graph.ints("axis", &[1], &[2]);
        let from_distance = graph.op("Unsqueeze", &[&sums, &columns_axis]);
        graph.op("Add", &[&to_distance, &from_distance])
    }

    fn norm(&mut self, x: &Value, name: &str) -> Value {
        let [weight, bias] = ["weight", "bias"]
            .map(|part| self.graph.weight(&format!("{name}.{part}"), &[self.config.hidden_size]));
        let attributes = vec![int("axis", -1), float("epsilon", self.config.layer_norm_eps)];
        self.graph.op_with("LayerNormalization", &[x, &weight, &bias], attributes)
    }
}
