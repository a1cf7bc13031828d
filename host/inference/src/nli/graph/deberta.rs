//! DeBERTa-v3 with a head for sequences: disentangled attention (He et al. 2021;
//! `modeling_deberta_v2.py`).
//!
//! A score is the sum of what query says to key, query to distance (“c2p”) and key to distance
//! (“p2c”), by √(3 Dh).

use crate::onnx::graph::{Float, Graph, Value, Written, float, int, ints};

use super::batch::{Attention, Batch, head, linear};
use super::positions::Positions;
use crate::nli::config::Deberta;

/// The graph for pairs of at most `most` tokens.
pub(crate) fn deberta(config: &Deberta, classes: usize, most: usize) -> Written {
    let mut graph = Graph::new("deberta", Float::F32);
    let batch = Batch::new(&mut graph);
    let (buckets, farthest) = (config.position_buckets, config.max_distance);
    let row_of = |distance| bucket(buckets, farthest, distance);
    let positions = Positions::new(&mut graph, &batch.columns, most, row_of);
    let width = config.hidden_size;
    let embedding =
        graph.weight("deberta.embeddings.word_embeddings.weight", &[config.vocab_size, width]);
    let x = graph.op("Gather", &[&embedding, &batch.ids]); // [B · N, D]
    let mut writer = Writer { graph, config, batch, positions };
    let mut x = writer.norm(&x, "deberta.embeddings.LayerNorm");
    let distances = writer
        .graph
        .weight("deberta.encoder.rel_embeddings.weight", &[2 * config.position_buckets, width]);
    let distances = writer.norm(&distances, "deberta.encoder.LayerNorm");
    for layer in 0..config.num_hidden_layers {
        x = writer.layer(layer, &x, &distances);
    }
    let graph_end = &mut writer.graph;
    let pooled = linear(graph_end, "pooler.dense", &x, [width, width], true);
    let pooled = graph_end.microsoft("Gelu", &[&pooled], Vec::new());
    head(graph_end, "classifier", &pooled, [width, classes]);
    writer.graph.finish()
}

/// The row of the table for a distance of query minus key: `make_log_bucket_position`, and what
/// `disentangled_attention_bias` adds.
pub(super) fn bucket(buckets: usize, max_distance: usize, distance: i64) -> i64 {
    let span = buckets as i64;
    let middle = span / 2;
    let far = distance.abs();
    let step = if far <= middle {
        distance
    } else {
        // In f32, as there.
        let log =
            (far as f32 / middle as f32).ln() / ((max_distance - 1) as f32 / middle as f32).ln();
        distance.signum() * ((log * (middle - 1) as f32).ceil() as i64 + middle)
    };
    (step + span).clamp(0, 2 * span - 1)
}

struct Writer<'a> {
    graph: Graph,
    config: &'a Deberta,
    batch: Batch,
    positions: Positions,
}

impl Writer<'_> {
    /// `x` `[B · N, D]`; of the last layer, `[B, D]` comes out. `distances` `[2 · buckets, D]`.
    fn layer(&mut self, layer: usize, x: &Value, distances: &Value) -> Value {
        let (width, wide) = (self.config.hidden_size, self.config.intermediate_size);
        let prefix = format!("deberta.encoder.layer.{layer}");
        let is_last = layer + 1 == self.config.num_hidden_layers;
        let asking = if is_last { self.batch.first(&mut self.graph, x, width) } else { x.clone() };
        let mut project = |part: &str, rows: &Value| {
            linear(
                &mut self.graph,
                &format!("{prefix}.attention.self.{part}_proj"),
                rows,
                [width, width],
                true,
            )
        };
        let (query, key, value) =
            (project("query", &asking), project("key", x), project("value", x));
        let (asked_by, asked_for) = (project("query", distances), project("key", distances));
        let scale = 1.0 / (3.0 * self.head_dim() as f32).sqrt();
        let [asked_by, asked_for] = [asked_by, asked_for].map(|table| self.table(&table, scale));
        let bias = match is_last {
            true => self.bias_of_first(&query, &key, &asked_by, &asked_for),
            false => self.bias(&query, &key, &asked_by, &asked_for),
        };
        let num_heads = self.config.num_attention_heads;
        let attention =
            Attention { query: &query, key: &key, value: &value, bias: &bias, num_heads, scale };
        let mixed = self.batch.attend(&mut self.graph, &attention, width);
        let mixed = linear(
            &mut self.graph,
            &format!("{prefix}.attention.output.dense"),
            &mixed,
            [width, width],
            true,
        );
        let mixed = self.graph.op("Add", &[&mixed, &asking]);
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

    /// Queries or keys of all distances, `[H, 2 · buckets, Dh]`, scaled.
    fn table(&mut self, table: &Value, scale: f32) -> Value {
        let (heads, dim) = (self.config.num_attention_heads as i64, self.head_dim() as i64);
        let shape = self.graph.ints("by_head", &[3], &[-1, heads, dim]);
        let scale = self.graph.floats("scale", &[], &[scale]);
        let table = self.graph.op("Reshape", &[table, &shape]);
        let table = self.graph.op_with("Transpose", &[&table], vec![ints("perm", &[1, 0, 2])]);
        self.graph.op("Mul", &[&table, &scale])
    }

    /// `[B · M, D]` as `[B, H, M, Dh]`.
    fn by_head(&mut self, x: &Value) -> Value {
        let (heads, dim) = (self.config.num_attention_heads as i64, self.head_dim() as i64);
        let rows = self.batch.by_row(&mut self.graph, x, self.config.hidden_size);
        let shape = self.graph.ints("by_head", &[4], &[0, 0, heads, dim]);
        let by_token = self.graph.op("Reshape", &[&rows, &shape]);
        self.graph.op_with("Transpose", &[&by_token], vec![ints("perm", &[0, 2, 1, 3])])
    }

    /// `[B, H, N, N]`
    fn bias(&mut self, query: &Value, key: &Value, asked_by: &Value, asked_for: &Value) -> Value {
        let (query, key) = (self.by_head(query), self.by_head(key));
        let Self { graph, positions, .. } = self;
        let mut products = |x: &Value, table: &Value, distances: &Value| {
            let rows = graph.op_with("Gather", &[table, distances], vec![int("axis", 1)]); // [H, 2N, Dh]
            let columns = graph.op_with("Transpose", &[&rows], vec![ints("perm", &[0, 2, 1])]);
            let products = graph.op("MatMul", &[x, &columns]); // [B, H, N, 2N]
            positions.skew(graph, &products)
        };
        // In a query's row the key comes later and later, in a key's row the query.
        let to_distance = products(&query, asked_for, &positions.falling);
        let from_distance = products(&key, asked_by, &positions.rising);
        let from_distance =
            graph.op_with("Transpose", &[&from_distance], vec![ints("perm", &[0, 1, 3, 2])]);
        graph.op("Add", &[&to_distance, &from_distance])
    }

    /// `[B, H, 1, N]`, of queries `[B, D]`.
    fn bias_of_first(
        &mut self,
        query: &Value,
        key: &Value,
        asked_by: &Value,
        asked_for: &Value,
    ) -> Value {
        let (query, key) = (self.by_head(query), self.by_head(key));
        let Self { graph, positions, .. } = self;
        let [asked_by, asked_for] = [asked_by, asked_for].map(|table| {
            graph.op_with("Gather", &[table, &positions.of_first], vec![int("axis", 1)])
        }); // [H, N, Dh]
        let columns = graph.op_with("Transpose", &[&asked_for], vec![ints("perm", &[0, 2, 1])]);
        let to_distance = graph.op("MatMul", &[&query, &columns]);
        let products = graph.op("Mul", &[&key, &asked_by]);
        let axis = graph.ints("axis", &[1], &[-1]);
        let sums = graph.op_with("ReduceSum", &[&products, &axis], vec![int("keepdims", 0)]); // [B, H, N]
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
