//! A decoder-only language model whose rows continue one prompt.
//!
//! The prompt's keys and values are one input for any number of rows; a row's own cache has the
//! tokens after the prompt. The queries of the entire batch are multiplied with the prompt's keys in
//! one product, and each row's queries with its own keys in another. One softmax normalises both.
//! New keys and values are written to the caches in place (`ScatterND`, input and output bound to
//! one tensor).
//!
//! Sizes: B rows, N new tokens of each, P tokens of prompt, C columns of the caches, H query heads,
//! G of them for each of the Hkv key heads, Dh the width of a head.

use crate::onnx::graph::ShapePart::{Fixed, Is};
use crate::onnx::graph::{
    CompletedGraph, Float, Graph, ShapePart, Value, fixed, float, int, named,
};
use corver_pretrained::{ModelConfig, ModelFamily};

use super::cache::scatter_indices;

/// Writes the graph, whose weights have their Hugging Face names.
///
/// Inputs: `input_ids` `[B, N]`; `start` `[B]`, the number of own tokens that a row has already;
/// `last` `[B]`, the column of `input_ids` whose logits are computed; `prompt.L.key` `[Hkv, Dh, P]`,
/// `prompt.L.value` `[Hkv, P, Dh]`; `own.L.key` and `own.L.value` `[B, Hkv, C, Dh]`. Outputs:
/// `best` `[B]`, the most probable token, of equal ones the first; `logit_sum` `[B, 1]`, not finite
/// if one of the row's logits is not; `next.L.key` and `next.L.value`, bound to the memory of the
/// last two. `positions` is the largest number of tokens of the prompt and a row together.
pub(crate) fn decoder(config: &ModelConfig, float: Float, positions: usize) -> CompletedGraph {
    let mut graph = Graph::new("decoder", float);
    let rows = named("rows");
    let ids = graph.int_input("input_ids", &[rows.clone(), named("tokens")]);
    let [start, last] =
        ["start", "last"].map(|name| graph.int_input(name, std::slice::from_ref(&rows)));
    let mut caches = Vec::with_capacity(config.num_layers);
    for layer in 0..config.num_layers {
        caches.push(Caches::new(&mut graph, config, layer));
    }
    let shared = LayerInputs::new(&mut graph, config, &ids, &start, &caches[0], positions);
    let mut writer = DecoderWriter { graph, config, shared };
    let logits = writer.decode(&ids, &last, &caches);
    let mut complete = writer.graph;
    // ONNX Runtime has no ArgMax of bf16 on a GPU.
    let searched = complete.op_with("Cast", &[&logits], vec![Float::F32.cast_attribute()]);
    let of_row = vec![int("axis", 1), int("keepdims", 0)];
    complete.int_output("best", "ArgMax", &[&searched], of_row, std::slice::from_ref(&rows));
    let vocabulary = complete.ints("axes", &[1], &[1]);
    let sum = [&logits, &vocabulary];
    complete.output("logit_sum", "ReduceSum", &sum, Vec::new(), &[rows, fixed(1)]);
    complete.finish()
}

/// Keys and values of a layer, which are inputs of the graph.
struct Caches {
    layer: usize,
    prompt: [Value; 2],
    own: [Value; 2],
}

impl Caches {
    fn new(graph: &mut Graph, config: &ModelConfig, layer: usize) -> Self {
        let heads = fixed(config.num_kv_heads);
        let dim = fixed(config.head_dim);
        let prompt = [
            graph.float_input(
                &format!("prompt.{layer}.key"),
                &[heads.clone(), dim.clone(), named("prompt")],
            ),
            graph.float_input(
                &format!("prompt.{layer}.value"),
                &[heads.clone(), named("prompt"), dim.clone()],
            ),
        ];
        let own = ["key", "value"].map(|part| {
            let shape = [named("rows"), heads.clone(), named("columns"), dim.clone()];
            graph.float_input(&format!("own.{layer}.{part}"), &shape)
        });
        Self { layer, prompt, own }
    }
}

/// Values that all layers use.
struct LayerInputs {
    /// `[B, N]`, positions of the new tokens, counted from the beginning of the prompt.
    positions: Value,
    /// Cosines of the rotary embedding, `[positions, Dh / 2]`; `sin` has its sines.
    cos: Value,
    sin: Value,
    /// `[B, 1, N, 1, C]`, true for the columns of the own cache that a token attends to.
    visible: Value,
    /// Attention score of the other columns.
    hidden_score: Value,
    /// Scale of the attention scores, 1 / √Dh.
    scale: Value,
    /// Indices of the new keys and values in the own cache, `[B, Hkv, N, 3]`.
    scatter_indices: Value,
    /// `[P, C]`, the lengths into which the attention weights are split.
    lengths: Value,
    /// Shapes for `Reshape`, this one and all below: 0 preserves a dimension, −1 infers it.
    by_token: Value,
    queries: Value,
    keys: Value,
    folded: Value,
    /// `[B, N, H, Dh]` or `[B, Hkv, N · G, Dh]`
    heads: Value,
    own_scores: Value,
    folded_scores: Value,
    own_weights: Value,
    of_prompt: Value,
    of_own: Value,
    flat: Value,
}

impl LayerInputs {
    fn new(
        graph: &mut Graph,
        config: &ModelConfig,
        ids: &Value,
        start: &Value,
        caches: &Caches,
        positions: usize,
    ) -> Self {
        let rows = graph.dimension(ids, 0);
        let tokens = graph.dimension(ids, 1);
        let prompt = graph.dimension(&caches.prompt[1], 1);
        let columns = graph.dimension(&caches.own[0], 2);
        let one = graph.ints("axes", &[1], &[1]);
        let start = graph.op("Unsqueeze", &[start, &one]);
        let steps = graph.range(&tokens);
        let own = graph.op("Add", &[&start, &steps]); // [B, N]
        let row_numbers = graph.range(&rows);
        let scatter_indices = scatter_indices(graph, &row_numbers, config.num_kv_heads, &own);
        let column_numbers = graph.range(&columns);
        let inner = graph.ints("axes", &[3], &[1, 3, 4]);
        let seen_from = graph.op("Unsqueeze", &[&own, &inner]); // [B, 1, N, 1, 1]
        let visible = graph.op("LessOrEqual", &[&column_numbers, &seen_from]);
        let [cos, sin] = rotary_tables(graph, config, positions);

        let [h, hkv, dim] =
            [config.num_heads, config.num_kv_heads, config.head_dim].map(|size| size as i64);
        let group = h / hkv;
        let mut shape = |parts: &[ShapePart<'_>]| graph.shape(parts);
        let by_token = shape(&[Is(&rows), Is(&tokens), Fixed(-1)]);
        let queries = shape(&[Fixed(0), Fixed(0), Fixed(hkv), Fixed(group), Fixed(dim)]);
        let keys = shape(&[Fixed(0), Fixed(0), Fixed(hkv), Fixed(dim)]);
        let folded = shape(&[Fixed(hkv), Fixed(-1), Fixed(dim)]);
        let heads = shape(&[Fixed(0), Fixed(0), Fixed(-1), Fixed(dim)]);
        let own_scores = shape(&[Fixed(0), Fixed(0), Is(&tokens), Fixed(group), Is(&columns)]);
        let folded_scores = shape(&[Fixed(hkv), Fixed(-1), Is(&columns)]);
        let own_weights = shape(&[Fixed(hkv), Is(&rows), Fixed(-1), Is(&columns)]);
        let of_prompt = shape(&[Fixed(hkv), Is(&rows), Is(&tokens), Fixed(group), Fixed(dim)]);
        let of_own = shape(&[Fixed(0), Fixed(0), Is(&tokens), Fixed(group), Fixed(dim)]);
        let flat = shape(&[Fixed(-1), Fixed(h * dim)]);
        let lengths = shape(&[Is(&prompt), Is(&columns)]);
        Self {
            positions: graph.op("Add", &[&own, &prompt]),
            cos,
            sin,
            visible,
            // Small enough for a weight of 0, and within the range of every floating-point type.
            hidden_score: graph.floats("hidden_score", &[], &[-3e4]),
            scale: graph.floats("scale", &[], &[(1.0 / (config.head_dim as f64).sqrt()) as f32]),
            scatter_indices,
            lengths,
            by_token,
            queries,
            keys,
            folded,
            heads,
            own_scores,
            folded_scores,
            own_weights,
            of_prompt,
            of_own,
            flat,
        }
    }
}

/// Returns the cosines and sines of the rotary embedding of every position.
fn rotary_tables(graph: &mut Graph, config: &ModelConfig, positions: usize) -> [Value; 2] {
    let frequencies = config.rope_frequencies();
    let mut cosines = Vec::with_capacity(positions * frequencies.len());
    let mut sines = Vec::with_capacity(positions * frequencies.len());
    for position in 0..positions {
        for &frequency in &frequencies {
            // Rounded to f32 before the product, as in `transformers`.
            let angle = position as f32 * frequency as f32;
            cosines.push(angle.cos());
            sines.push(angle.sin());
        }
    }
    let shape = [positions, frequencies.len()];
    [graph.floats("cos", &shape, &cosines), graph.floats("sin", &shape, &sines)]
}

struct DecoderWriter<'a> {
    graph: Graph,
    config: &'a ModelConfig,
    shared: LayerInputs,
}

impl DecoderWriter<'_> {
    /// Writes the entire decoder and returns the logits, `[B, V]`.
    fn decode(&mut self, ids: &Value, last: &Value, caches: &[Caches]) -> Value {
        let ModelConfig { vocab_size: vocabulary, hidden_size: width, .. } = *self.config;
        let embedding = self.graph.weight("model.embed_tokens.weight", &[vocabulary, width]);
        let flat = self.graph.ints("size", &[1], &[-1]);
        let flat_ids = self.graph.op("Reshape", &[ids, &flat]);
        let mut x = self.graph.op("Gather", &[&embedding, &flat_ids]); // [B · N, D]
        for layer in caches {
            x = self.layer(&x, layer);
        }
        let tokens = self.graph.dimension(ids, 1);
        let rows = self.graph.dimension(ids, 0);
        let rows = self.graph.range(&rows);
        let firsts = self.graph.op("Mul", &[&rows, &tokens]);
        // The logits of other tokens are not needed, and the last product is the largest one.
        let lasts = self.graph.op("Add", &[&firsts, last]);
        let x = self.graph.op("Gather", &[&x, &lasts]);
        let x = self.hidden_norm(&x, "model.norm");
        let head = if self.config.tie_embeddings {
            embedding
        } else {
            self.graph.weight("lm_head.weight", &[vocabulary, width])
        };
        self.graph.op_with("Gemm", &[&x, &head], vec![int("transB", 1)])
    }

    /// Writes a decoder layer. `x` and the result are `[B · N, D]`.
    fn layer(&mut self, x: &Value, caches: &Caches) -> Value {
        let prefix = format!("model.layers.{}", caches.layer);
        if self.config.family == ModelFamily::Olmo2 {
            let mixed = self.attention(&prefix, x, caches);
            let mixed = self.hidden_norm(&mixed, &format!("{prefix}.post_attention_layernorm"));
            let x = self.graph.op("Add", &[x, &mixed]);
            let fed = self.feed_forward(&prefix, &x);
            let fed = self.hidden_norm(&fed, &format!("{prefix}.post_feedforward_layernorm"));
            return self.graph.op("Add", &[&x, &fed]);
        }
        let normed = self.hidden_norm(x, &format!("{prefix}.input_layernorm"));
        let mixed = self.attention(&prefix, &normed, caches);
        let x = self.graph.op("Add", &[x, &mixed]);
        let post_attention = self.hidden_norm(&x, &format!("{prefix}.post_attention_layernorm"));
        let fed = self.feed_forward(&prefix, &post_attention);
        self.graph.op("Add", &[&x, &fed])
    }

    /// Writes the attention of a layer. `x` and the result are `[B · N, D]`.
    fn attention(&mut self, prefix: &str, x: &Value, caches: &Caches) -> Value {
        let ModelConfig { hidden_size, num_heads, num_kv_heads, head_dim, .. } = *self.config;
        let has_bias = self.config.family == ModelFamily::Qwen2;
        let mut project = |part: &str, heads: usize| {
            let y = self.linear(
                &format!("{prefix}.self_attn.{part}_proj"),
                x,
                hidden_size,
                heads * head_dim,
                has_bias,
            );
            self.graph.op("Reshape", &[&y, &self.shared.by_token]) // [B, N, heads · Dh]
        };
        let query = project("q", num_heads);
        let key = project("k", num_kv_heads);
        let value = project("v", num_kv_heads);
        let query = self.qk_norm(&query, &format!("{prefix}.self_attn.q_norm"), num_heads);
        let key = self.qk_norm(&key, &format!("{prefix}.self_attn.k_norm"), num_kv_heads);
        let query = self.rotate(&query);
        let key = self.rotate(&key);
        let query = self.graph.op("Mul", &[&query, &self.shared.scale]);
        let query = self.graph.op("Reshape", &[&query, &self.shared.queries]); // [B, N, Hkv, G, Dh]
        let own_keys = self.write_cache("key", &key, caches, 0);
        let own_values = self.write_cache("value", &value, caches, 1);
        let [prompt_weights, own_weights] = self.attention_weights(&query, &own_keys, caches);
        let mixed = self.mix_values(&prompt_weights, &own_weights, &own_values, caches);
        self.linear(
            &format!("{prefix}.self_attn.o_proj"),
            &mixed,
            num_heads * head_dim,
            hidden_size,
            false,
        )
    }

    /// Returns the attention weights of the prompt's tokens, `[Hkv, B · N · G, P]`, and of the own
    /// ones, `[Hkv, B · N · G, C]`. `query` is `[B, N, Hkv, G, Dh]`.
    fn attention_weights(
        &mut self,
        query: &Value,
        own_keys: &Value,
        caches: &Caches,
    ) -> [Value; 2] {
        let Self { graph, shared, .. } = self;
        // [Hkv, B · N · G, Dh] · [Hkv, Dh, P]
        let by_head = graph.transpose(query, &[2, 0, 1, 3, 4]);
        let by_head = graph.op("Reshape", &[&by_head, &shared.folded]);
        let prompt_scores = graph.op("MatMul", &[&by_head, &caches.prompt[0]]);
        // [B, Hkv, N · G, Dh] · [B, Hkv, Dh, C]
        let by_row = graph.transpose(query, &[0, 2, 1, 3, 4]);
        let by_row = graph.op("Reshape", &[&by_row, &shared.heads]);
        let keys = graph.transpose(own_keys, &[0, 1, 3, 2]);
        let own_scores = graph.op("MatMul", &[&by_row, &keys]);
        // [B, Hkv, N, G, C], masked
        let own_scores = graph.op("Reshape", &[&own_scores, &shared.own_scores]);
        let own_scores = graph.op("Where", &[&shared.visible, &own_scores, &shared.hidden_score]);
        // [Hkv, B · N · G, C]
        let own_scores = graph.transpose(&own_scores, &[1, 0, 2, 3, 4]);
        let own_scores = graph.op("Reshape", &[&own_scores, &shared.folded_scores]);
        let scores = graph.op_with("Concat", &[&prompt_scores, &own_scores], vec![int("axis", -1)]);
        let weights = graph.op_with("Softmax", &[&scores], vec![int("axis", -1)]);
        graph.split(&weights, &shared.lengths)
    }

    /// Returns the sum of the values by their weights, `[B · N, H · Dh]`.
    fn mix_values(
        &mut self,
        prompt_weights: &Value,
        own_weights: &Value,
        own_values: &Value,
        caches: &Caches,
    ) -> Value {
        let Self { graph, shared, .. } = self;
        let from_prompt = graph.op("MatMul", &[prompt_weights, &caches.prompt[1]]);
        // [Hkv, B, N, G, Dh]
        let from_prompt = graph.op("Reshape", &[&from_prompt, &shared.of_prompt]);
        let from_prompt = graph.transpose(&from_prompt, &[1, 2, 0, 3, 4]);
        // [Hkv, B, N · G, C]
        let by_head = graph.op("Reshape", &[own_weights, &shared.own_weights]);
        let by_row = graph.transpose(&by_head, &[1, 0, 2, 3]);
        // [B, Hkv, N · G, Dh]
        let from_own = graph.op("MatMul", &[&by_row, own_values]);
        let from_own = graph.op("Reshape", &[&from_own, &shared.of_own]);
        let from_own = graph.transpose(&from_own, &[0, 2, 1, 3, 4]);
        let mixed = graph.op("Add", &[&from_prompt, &from_own]); // [B, N, Hkv, G, Dh]
        graph.op("Reshape", &[&mixed, &shared.flat])
    }

    fn rotate(&mut self, heads: &Value) -> Value {
        let LayerInputs { positions, cos, sin, .. } = &self.shared;
        self.graph.microsoft("RotaryEmbedding", &[heads, positions, cos, sin], Vec::new())
    }

    /// Writes new keys (`part` 0) or values (`part` 1) `[B, N, Hkv · Dh]` to the own cache, and
    /// returns the cache `[B, Hkv, C, Dh]`.
    fn write_cache(&mut self, name: &str, new: &Value, caches: &Caches, part: usize) -> Value {
        let ModelConfig { num_kv_heads, head_dim, .. } = *self.config;
        let Self { graph, shared, .. } = self;
        let new = graph.op("Reshape", &[new, &shared.keys]);
        let new = graph.transpose(&new, &[0, 2, 1, 3]);
        let shape = [named("rows"), fixed(num_kv_heads), named("columns"), fixed(head_dim)];
        let inputs = [&caches.own[part], &shared.scatter_indices, &new];
        let output = format!("next.{}.{name}", caches.layer);
        graph.output(&output, "ScatterND", &inputs, Vec::new(), &shape)
    }

    fn feed_forward(&mut self, prefix: &str, x: &Value) -> Value {
        let narrow = self.config.hidden_size;
        let wide = self.config.intermediate_size;
        let gate = self.linear(&format!("{prefix}.mlp.gate_proj"), x, narrow, wide, false);
        let up = self.linear(&format!("{prefix}.mlp.up_proj"), x, narrow, wide, false);
        let sigmoid = self.graph.op("Sigmoid", &[&gate]);
        let silu = self.graph.op("Mul", &[&gate, &sigmoid]);
        let gated = self.graph.op("Mul", &[&silu, &up]);
        self.linear(&format!("{prefix}.mlp.down_proj"), &gated, wide, narrow, false)
    }

    /// Writes the RMS norm of queries or keys before the rotation: over each head (Qwen3), over all
    /// heads together (OLMo-2), or none. `heads` and the result are `[B, N, num_heads · Dh]`.
    fn qk_norm(&mut self, heads: &Value, name: &str, num_heads: usize) -> Value {
        let head_dim = self.config.head_dim;
        match self.config.family {
            ModelFamily::Llama | ModelFamily::Qwen2 => heads.clone(),
            ModelFamily::Qwen3 => {
                let by_head = self.graph.op("Reshape", &[heads, &self.shared.heads]);
                let normed = self.norm(&by_head, name, head_dim);
                self.graph.op("Reshape", &[&normed, &self.shared.by_token])
            }
            ModelFamily::Olmo2 => self.norm(heads, name, num_heads * head_dim),
        }
    }

    /// Writes the RMS norm of hidden states `[B · N, D]`.
    fn hidden_norm(&mut self, x: &Value, name: &str) -> Value {
        self.norm(x, name, self.config.hidden_size)
    }

    /// Writes the RMS norm over the last dimension, of size `width`.
    fn norm(&mut self, x: &Value, name: &str, width: usize) -> Value {
        let weight = self.graph.weight(&format!("{name}.weight"), &[width]);
        let attributes = vec![
            int("axis", -1),
            float("epsilon", self.config.norm_eps as f32),
            int("stash_type", 1),
        ];
        self.graph.op_with("SimplifiedLayerNormalization", &[x, &weight], attributes)
    }

    /// Returns x · Wᵀ + b, for W `[out, in]` in the layout of the file.
    fn linear(&mut self, name: &str, x: &Value, input: usize, out: usize, has_bias: bool) -> Value {
        let weight = self.graph.weight(&format!("{name}.weight"), &[out, input]);
        let mut inputs = vec![x.clone(), weight];
        if has_bias {
            inputs.push(self.graph.weight(&format!("{name}.bias"), &[out]));
        }
        self.graph.op_with("Gemm", &inputs.iter().collect::<Vec<_>>(), vec![int("transB", 1)])
    }
}
