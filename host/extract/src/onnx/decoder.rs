//! A Qwen2-style decoder as an ONNX graph with a KV cache, in the layout that `optimum` exports.
//!
//! Only plain operators are used, so that rows may be padded at the left and a shared prompt may be repeated over a
//! batch. Inputs: `input_ids`, `position_ids` `[B, T]`, `attention_mask` `[B, P + T]` i64,
//! `past_key_values.N.key` and `.value` `[B, Hkv, P, Dh]` f32. Outputs: `logits` `[B, T, V]`,
//! `present.N.key` and `.value` `[B, Hkv, P + T, Dh]`.

use super::graph::{Graph, Value, fixed, int, ints, named};
use super::proto::{BOOL, FLOAT, INT64};
use super::{DecoderShape, OnnxError, Weight};

type Result<T> = std::result::Result<T, OnnxError>;
/// Returns the weight of a Hugging Face name, or `None` where the model has none.
type Weights<'a> =
    dyn FnMut(&str) -> std::result::Result<Option<Weight>, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// The bytes of the decoder's `.onnx` file, weights in f32. `weights` returns the weight of a Hugging Face name, `None`
/// where the model has none; each is asked for once.
///
/// # Errors
/// Sizes that do not fit together, and weights that are missing, of another shape, or fail to be read.
pub fn encode_decoder(shape: &DecoderShape, weights: &mut Weights<'_>) -> Result<Vec<u8>> {
    shape.check()?;
    let mut export = Export { graph: Graph::default(), shape, weights };
    export.decoder()?;
    Ok(export.graph.encode("extractor"))
}

struct Export<'a> {
    graph: Graph,
    shape: &'a DecoderShape,
    weights: &'a mut Weights<'a>,
}

/// What every layer shares.
struct Shared {
    /// `[B, 1, T, Dh/2]`
    cos: Value,
    sin: Value,
    /// `[B, 1, 1, T, P + T]` bool
    visible: Value,
    /// 1/√Dh
    scale: Value,
    /// What a score becomes where nothing may be seen: finite, so that a row of padding stays a number.
    hidden_score: Value,
    epsilon: Value,
    /// The axis of the query groups.
    group_axis: Value,
    /// `[0, 0, H, Dh]`, `[0, 0, Hkv, Dh]`, `[0, Hkv, G, −1, Dh]`, `[0, 0, H·Dh]`: 0 keeps a dimension.
    query_shape: Value,
    key_shape: Value,
    grouped_shape: Value,
    flat_shape: Value,
}

impl Export<'_> {
    fn decoder(&mut self) -> Result<()> {
        let size = self.shape;
        let (batch, sequence, total) = (named("batch"), named("sequence"), named("total"));
        let by_token = [batch.clone(), sequence.clone()];
        let ids = self.graph.input("input_ids", INT64, &by_token);
        let mask = self.graph.input("attention_mask", INT64, &[batch.clone(), total.clone()]);
        let positions = self.graph.input("position_ids", INT64, &by_token);
        let shared = self.shared(&ids, &mask, &positions);
        let embedding = self.weight("model.embed_tokens.weight", &[size.vocab_size, size.hidden_size])?;
        let mut x = self.graph.op("Gather", &[&embedding, &ids]); // [B, T, D]
        let (heads, width) = (fixed(size.num_kv_heads), fixed(size.head_dim));
        for n in 0..size.num_layers {
            let mut past = |part: &str| {
                let shape = [batch.clone(), heads.clone(), named("past"), width.clone()];
                self.graph.input(&format!("past_key_values.{n}.{part}"), FLOAT, &shape)
            };
            let past = [past("key"), past("value")];
            let (out, present) = self.layer(n, &x, &past, &shared)?;
            x = out;
            for (value, part) in present.iter().zip(["key", "value"]) {
                let shape = [batch.clone(), heads.clone(), total.clone(), width.clone()];
                self.graph.output(&format!("present.{n}.{part}"), value, &shape);
            }
        }
        x = self.norm(&x, "model.norm.weight", &shared)?;
        let head = match size.tie_embeddings {
            // The table is stored once; the runtime folds this when it loads the graph.
            true => self.graph.op_with("Transpose", &[&embedding], vec![ints("perm", &[1, 0])]),
            false => self.matrix("lm_head.weight", size.vocab_size, size.hidden_size)?,
        };
        let logits = self.graph.op("MatMul", &[&x, &head]);
        self.graph.output("logits", &logits, &[batch, sequence, fixed(size.vocab_size)]);
        Ok(())
    }

    fn shared(&mut self, ids: &Value, mask: &Value, positions: &Value) -> Shared {
        let size = self.shape;
        let graph = &mut self.graph;
        let frequencies: Vec<f32> = (0..size.head_dim / 2)
            .map(|i| size.rope_theta.powf(-2.0 * i as f64 / size.head_dim as f64) as f32)
            .collect();
        let frequencies = graph.floats("rope_frequencies", &[frequencies.len()], &frequencies);
        let positions = graph.op_with("Cast", &[positions], vec![int("to", i64::from(FLOAT))]);
        let outer = graph.ints("axes_1_3", &[2], &[1, 3]);
        let positions = graph.op("Unsqueeze", &[&positions, &outer]); // [B, 1, T, 1]
        let angles = graph.op("Mul", &[&positions, &frequencies]);
        let (cos, sin) = (graph.op("Cos", &[&angles]), graph.op("Sin", &[&angles]));

        // Token t of this run stands in column P + t and sees the columns up to there that are not padding.
        let (zero, one) = (graph.ints("zero", &[], &[0]), graph.ints("one", &[], &[1]));
        let mut length = |value: &Value| {
            let shape = graph.op("Shape", &[value]);
            graph.op("Gather", &[&shape, &one])
        };
        let (total, width) = (length(mask), length(ids));
        let first = graph.op("Sub", &[&total, &width]);
        let columns = graph.op("Range", &[&zero, &total, &one]); // [P + T]
        let own = graph.op("Range", &[&first, &total, &one]); // [T]
        let last_axis = graph.ints("axes_1", &[1], &[1]);
        let own = graph.op("Unsqueeze", &[&own, &last_axis]); // [T, 1]
        let causal = graph.op("LessOrEqual", &[&columns, &own]); // [T, P + T]
        let real = graph.op_with("Cast", &[mask], vec![int("to", BOOL)]);
        let inner = graph.ints("axes_1_2_3", &[3], &[1, 2, 3]);
        let real = graph.op("Unsqueeze", &[&real, &inner]); // [B, 1, 1, 1, P + T]
        let visible = graph.op("And", &[&causal, &real]);

        let (heads, kv_heads, width) = (size.num_heads as i64, size.num_kv_heads as i64, size.head_dim as i64);
        Shared {
            cos,
            sin,
            visible,
            scale: graph.floats("attention_scale", &[], &[(1.0 / (size.head_dim as f64).sqrt()) as f32]),
            hidden_score: graph.floats("hidden_score", &[], &[-1e9]),
            epsilon: graph.floats("norm_epsilon", &[], &[size.norm_eps as f32]),
            group_axis: graph.ints("axes_2", &[1], &[2]),
            query_shape: graph.ints("query_shape", &[4], &[0, 0, heads, width]),
            key_shape: graph.ints("key_shape", &[4], &[0, 0, kv_heads, width]),
            grouped_shape: graph.ints("grouped_shape", &[5], &[0, kv_heads, heads / kv_heads, -1, width]),
            flat_shape: graph.ints("flat_shape", &[3], &[0, 0, heads * width]),
        }
    }

    fn layer(&mut self, n: usize, x: &Value, past: &[Value; 2], shared: &Shared) -> Result<(Value, [Value; 2])> {
        let prefix = format!("model.layers.{n}");
        let normed = self.norm(x, &format!("{prefix}.input_layernorm.weight"), shared)?;
        let (mixed, present) = self.attention(&prefix, &normed, past, shared)?;
        let x = self.graph.op("Add", &[x, &mixed]);
        let normed = self.norm(&x, &format!("{prefix}.post_attention_layernorm.weight"), shared)?;
        let fed = self.feed_forward(&prefix, &normed)?;
        Ok((self.graph.op("Add", &[&x, &fed]), present))
    }

    fn attention(
        &mut self,
        prefix: &str,
        x: &Value,
        past: &[Value; 2],
        shared: &Shared,
    ) -> Result<(Value, [Value; 2])> {
        let DecoderShape { hidden_size, num_heads, num_kv_heads, head_dim, .. } = *self.shape;
        let mut project = |part: &str, heads: usize, shape: &Value| -> Result<Value> {
            let name = format!("{prefix}.self_attn.{part}_proj");
            let y = self.linear(&name, x, heads * head_dim, hidden_size)?;
            let bias = self.weight(&format!("{name}.bias"), &[heads * head_dim])?;
            let y = self.graph.op("Add", &[&y, &bias]);
            let y = self.graph.op("Reshape", &[&y, shape]);
            Ok(self.graph.op_with("Transpose", &[&y], vec![ints("perm", &[0, 2, 1, 3])])) // [B, heads, T, Dh]
        };
        let query = project("q", num_heads, &shared.query_shape)?;
        let key = project("k", num_kv_heads, &shared.key_shape)?;
        let value = project("v", num_kv_heads, &shared.key_shape)?;
        let (query, key) = (self.rotate(&query, shared), self.rotate(&key, shared));
        let graph = &mut self.graph;
        let keys = graph.op_with("Concat", &[&past[0], &key], vec![int("axis", 2)]);
        let values = graph.op_with("Concat", &[&past[1], &value], vec![int("axis", 2)]);

        // A key head serves G query heads: a dimension of their own, over which the product broadcasts.
        let query = graph.op("Reshape", &[&query, &shared.grouped_shape]); // [B, Hkv, G, T, Dh]
        let turned = graph.op_with("Transpose", &[&keys], vec![ints("perm", &[0, 1, 3, 2])]);
        let turned = graph.op("Unsqueeze", &[&turned, &shared.group_axis]); // [B, Hkv, 1, Dh, P + T]
        let scores = graph.op("MatMul", &[&query, &turned]);
        let scores = graph.op("Mul", &[&scores, &shared.scale]);
        let scores = graph.op("Where", &[&shared.visible, &scores, &shared.hidden_score]);
        let weights = graph.op_with("Softmax", &[&scores], vec![int("axis", -1)]);
        let spread = graph.op("Unsqueeze", &[&values, &shared.group_axis]);
        let mixed = graph.op("MatMul", &[&weights, &spread]); // [B, Hkv, G, T, Dh]
        let mixed = graph.op_with("Transpose", &[&mixed], vec![ints("perm", &[0, 3, 1, 2, 4])]);
        let mixed = graph.op("Reshape", &[&mixed, &shared.flat_shape]); // [B, T, H·Dh]
        let out = self.linear(&format!("{prefix}.self_attn.o_proj"), &mixed, hidden_size, num_heads * head_dim)?;
        Ok((out, [keys, values]))
    }

    /// Dimension i is paired with i + Dh/2.
    fn rotate(&mut self, x: &Value, shared: &Shared) -> Value {
        let graph = &mut self.graph;
        let [a, b] = graph.halves(x);
        let mut mul = |x: &Value, y: &Value| graph.op("Mul", &[x, y]);
        let (a_cos, a_sin) = (mul(&a, &shared.cos), mul(&a, &shared.sin));
        let (b_cos, b_sin) = (mul(&b, &shared.cos), mul(&b, &shared.sin));
        let left = graph.op("Sub", &[&a_cos, &b_sin]);
        let right = graph.op("Add", &[&b_cos, &a_sin]);
        graph.op_with("Concat", &[&left, &right], vec![int("axis", -1)])
    }

    fn feed_forward(&mut self, prefix: &str, x: &Value) -> Result<Value> {
        let (narrow, wide) = (self.shape.hidden_size, self.shape.intermediate_size);
        let gate = self.linear(&format!("{prefix}.mlp.gate_proj"), x, wide, narrow)?;
        let up = self.linear(&format!("{prefix}.mlp.up_proj"), x, wide, narrow)?;
        let sigmoid = self.graph.op("Sigmoid", &[&gate]);
        let silu = self.graph.op("Mul", &[&gate, &sigmoid]);
        let gated = self.graph.op("Mul", &[&silu, &up]);
        self.linear(&format!("{prefix}.mlp.down_proj"), &gated, narrow, wide)
    }

    /// x / √(mean(x²) + ε) · weight
    fn norm(&mut self, x: &Value, weight: &str, shared: &Shared) -> Result<Value> {
        let weight = self.weight(weight, &[self.shape.hidden_size])?;
        let graph = &mut self.graph;
        let square = graph.op("Mul", &[x, x]);
        let mean = graph.op_with("ReduceMean", &[&square], vec![ints("axes", &[-1]), int("keepdims", 1)]);
        let mean = graph.op("Add", &[&mean, &shared.epsilon]);
        let root = graph.op("Sqrt", &[&mean]);
        let normed = graph.op("Div", &[x, &root]);
        Ok(graph.op("Mul", &[&normed, &weight]))
    }

    /// x · Wᵀ, for W `[out, in]`.
    fn linear(&mut self, name: &str, x: &Value, out: usize, input: usize) -> Result<Value> {
        let weight = self.matrix(&format!("{name}.weight"), out, input)?;
        Ok(self.graph.op("MatMul", &[x, &weight]))
    }

    /// The weight of a linear layer, stored as `[in, out]`: the way `MatMul` wants it.
    fn matrix(&mut self, name: &str, out: usize, input: usize) -> Result<Value> {
        let rows = self.read(name, &[out, input])?;
        let columns: Vec<f32> = (0..input).flat_map(|i| rows[i..].iter().step_by(input).copied()).collect();
        Ok(self.graph.floats(name, &[input, out], &columns))
    }

    /// Any other weight, as it is.
    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<Value> {
        let values = self.read(name, shape)?;
        Ok(self.graph.floats(name, shape, &values))
    }

    fn read(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let wrong = |got| OnnxError::Weight { name: name.to_owned(), expected: shape.to_vec(), got };
        let found = (self.weights)(name).map_err(|source| OnnxError::Read { name: name.to_owned(), source })?;
        let weight = found.ok_or_else(|| wrong("no such weight".to_owned()))?;
        if weight.shape != shape || weight.values.len() != shape.iter().product::<usize>() {
            return Err(wrong(format!("shape {:?}, {} values", weight.shape, weight.values.len())));
        }
        Ok(weight.values)
    }
}
