//! A Llama or Qwen2 decoder whose rows continue one prompt.
//!
//! The prompt's keys and values are one input, however many rows there are; a row's own cache holds
//! the tokens behind the prompt. Every query is multiplied with the prompt's keys in one product
//! over the whole batch, and with its own row's keys in another; one softmax goes over both. New
//! keys and values are written into the caches where they stand (`ScatterND`, input and output
//! bound to one tensor).
//!
//! Sizes: B rows, N new tokens of each, P tokens of prompt, C columns of the caches, H query heads,
//! G of them to each of Hkv key heads, Dh wide.

use crate::onnx::graph::{Float, Graph, Size, Value, Written, fixed, float, int, ints, named};
use corver_pretrained::{ModelConfig, ModelFamily};

use super::place::places;

/// The graph, whose weights have their Hugging Face names.
///
/// Inputs: `input_ids` `[B, N]`; `start` `[B]`, the own tokens that a row has already; `last`
/// `[B]`, the column of `input_ids` whose logits are wanted; `prompt.L.key` `[Hkv, Dh, P]`,
/// `prompt.L.value` `[Hkv, P, Dh]`; `own.L.key` and `own.L.value` `[B, Hkv, C, Dh]`. Outputs:
/// `logits` `[B, V]`; `next.L.key` and `next.L.value`, bound to the memory of the last two.
/// `positions` is the most tokens of a prompt and a row.
pub(crate) fn decoder(config: &ModelConfig, float: Float, positions: usize) -> Written {
    let mut graph = Graph::new("decoder", float);
    let rows = named("rows");
    let ids = graph.int_input("input_ids", &[rows.clone(), named("tokens")]);
    let [start, last] =
        ["start", "last"].map(|name| graph.int_input(name, std::slice::from_ref(&rows)));
    let caches: Vec<Caches> =
        (0..config.num_layers).map(|layer| Caches::of(&mut graph, config, layer)).collect();
    let shared = Shared::new(&mut graph, config, &ids, &start, &caches[0], positions);
    let mut writer = Writer { graph, config, shared };
    let logits = writer.decode(&ids, &last, &caches);
    writer.graph.output(
        "logits",
        "Identity",
        &[&logits],
        Vec::new(),
        &[rows, fixed(config.vocab_size)],
    );
    writer.graph.finish()
}

/// Keys and values that a layer is given.
struct Caches {
    layer: usize,
    prompt: [Value; 2],
    own: [Value; 2],
}

impl Caches {
    fn of(graph: &mut Graph, config: &ModelConfig, layer: usize) -> Self {
        let (heads, dim) = (fixed(config.num_kv_heads), fixed(config.head_dim));
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

/// What every layer uses.
struct Shared {
    /// `[B, N]`, of the new tokens behind the prompt.
    positions: Value,
    /// Tables `[positions, Dh / 2]`.
    cos: Value,
    sin: Value,
    /// `[B, 1, N, 1, C]` bool: the columns of the own cache that a token sees.
    visible: Value,
    /// What a score becomes where nothing may be seen.
    hidden_score: Value,
    /// 1 / √Dh
    scale: Value,
    /// `[B, Hkv, N, 3]`, see [`places`].
    places: Value,
    /// `[P, C]`
    lengths: Value,
    /// Shapes, as `Reshape` takes them: 0 keeps a dimension, −1 takes what is left.
    by_token: Value,
    queries: Value,
    keys: Value,
    folded: Value,
    by_row: Value,
    own_scores: Value,
    folded_scores: Value,
    own_weights: Value,
    of_prompt: Value,
    of_own: Value,
    flat: Value,
}

impl Shared {
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
        let places = places(graph, &row_numbers, config.num_kv_heads, &own);
        let column_numbers = graph.range(&columns);
        let inner = graph.ints("axes", &[3], &[1, 3, 4]);
        let seen_from = graph.op("Unsqueeze", &[&own, &inner]); // [B, 1, N, 1, 1]
        let visible = graph.op("LessOrEqual", &[&column_numbers, &seen_from]);
        let [cos, sin] = tables(graph, config, positions);

        let [h, hkv, dim] =
            [config.num_heads, config.num_kv_heads, config.head_dim].map(|size| size as i64);
        let group = h / hkv;
        let mut shape = |parts: &[Size<'_>]| graph.shape(parts);
        let (by_token, queries) = (
            shape(&[Size::Is(&rows), Size::Is(&tokens), Size::Fixed(-1)]),
            shape(&[
                Size::Fixed(0),
                Size::Fixed(0),
                Size::Fixed(hkv),
                Size::Fixed(group),
                Size::Fixed(dim),
            ]),
        );
        let keys = shape(&[Size::Fixed(0), Size::Fixed(0), Size::Fixed(hkv), Size::Fixed(dim)]);
        let folded = shape(&[Size::Fixed(hkv), Size::Fixed(-1), Size::Fixed(dim)]);
        let by_row = shape(&[Size::Fixed(0), Size::Fixed(0), Size::Fixed(-1), Size::Fixed(dim)]);
        let own_scores = shape(&[
            Size::Fixed(0),
            Size::Fixed(0),
            Size::Is(&tokens),
            Size::Fixed(group),
            Size::Is(&columns),
        ]);
        let folded_scores = shape(&[Size::Fixed(hkv), Size::Fixed(-1), Size::Is(&columns)]);
        let own_weights =
            shape(&[Size::Fixed(hkv), Size::Is(&rows), Size::Fixed(-1), Size::Is(&columns)]);
        let of_prompt = shape(&[
            Size::Fixed(hkv),
            Size::Is(&rows),
            Size::Is(&tokens),
            Size::Fixed(group),
            Size::Fixed(dim),
        ]);
        let of_own = shape(&[
            Size::Fixed(0),
            Size::Fixed(0),
            Size::Is(&tokens),
            Size::Fixed(group),
            Size::Fixed(dim),
        ]);
        let flat = shape(&[Size::Fixed(-1), Size::Fixed(h * dim)]);
        let lengths = shape(&[Size::Is(&prompt), Size::Is(&columns)]);
        Self {
            positions: graph.op("Add", &[&own, &prompt]),
            cos,
            sin,
            visible,
            // Within the range of every type.
            hidden_score: graph.floats("hidden_score", &[], &[-3e4]),
            scale: graph.floats("scale", &[], &[(1.0 / (config.head_dim as f64).sqrt()) as f32]),
            places,
            lengths,
            by_token,
            queries,
            keys,
            folded,
            by_row,
            own_scores,
            folded_scores,
            own_weights,
            of_prompt,
            of_own,
            flat,
        }
    }
}

/// Cosines and sines of every position.
fn tables(graph: &mut Graph, config: &ModelConfig, positions: usize) -> [Value; 2] {
    // The angles are rounded as `transformers` rounds them.
    let frequencies: Vec<f32> =
        config.rope_frequencies().into_iter().map(|frequency| frequency as f32).collect();
    let angles: Vec<f32> =
        (0..positions).flat_map(|n| frequencies.iter().map(move |f| n as f32 * f)).collect();
    let shape = [positions, frequencies.len()];
    let mut table = |name, of: fn(f32) -> f32| {
        graph.floats(name, &shape, &angles.iter().map(|&a| of(a)).collect::<Vec<_>>())
    };
    [table("cos", f32::cos), table("sin", f32::sin)]
}

struct Writer<'a> {
    graph: Graph,
    config: &'a ModelConfig,
    shared: Shared,
}

impl Writer<'_> {
    /// `[B, V]`
    fn decode(&mut self, ids: &Value, last: &Value, caches: &[Caches]) -> Value {
        let (vocabulary, width) = (self.config.vocab_size, self.config.hidden_size);
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
        let lasts = self.graph.op("Add", &[&firsts, last]);
        let x = self.graph.op("Gather", &[&x, &lasts]);
        let x = self.norm(&x, "model.norm.weight");
        let head = match self.config.tie_embeddings {
            true => embedding,
            false => self.graph.weight("lm_head.weight", &[vocabulary, width]),
        };
        self.graph.op_with("Gemm", &[&x, &head], vec![int("transB", 1)])
    }

    /// `x` `[B · N, D]`
    fn layer(&mut self, x: &Value, caches: &Caches) -> Value {
        let prefix = format!("model.layers.{}", caches.layer);
        let normed = self.norm(x, &format!("{prefix}.input_layernorm.weight"));
        let mixed = self.attention(&prefix, &normed, caches);
        let x = self.graph.op("Add", &[x, &mixed]);
        let post_attention = self.norm(&x, &format!("{prefix}.post_attention_layernorm.weight"));
        let fed = self.feed_forward(&prefix, &post_attention);
        self.graph.op("Add", &[&x, &fed])
    }

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
        let (query, key, value) =
            (project("q", num_heads), project("k", num_kv_heads), project("v", num_kv_heads));
        let Self { graph, shared, .. } = self;
        let rotate = |writer: &mut Graph, heads: &Value| {
            writer.microsoft(
                "RotaryEmbedding",
                &[heads, &shared.positions, &shared.cos, &shared.sin],
                Vec::new(),
            )
        };
        let (query, key) = (rotate(graph, &query), rotate(graph, &key));
        let query = graph.op("Mul", &[&query, &shared.scale]);
        let query = graph.op("Reshape", &[&query, &shared.queries]); // [B, N, Hkv, G, Dh]
        let kept =
            ["key", "value"].iter().zip([key, value]).zip(&caches.own).map(|((part, new), own)| {
                let new = graph.op("Reshape", &[&new, &shared.keys]);
                let new = graph.op_with("Transpose", &[&new], vec![ints("perm", &[0, 2, 1, 3])]);
                let shape = [named("rows"), fixed(num_kv_heads), named("columns"), fixed(head_dim)];
                let name = format!("next.{}.{part}", caches.layer);
                graph.output(&name, "ScatterND", &[own, &shared.places, &new], Vec::new(), &shape) // [B, Hkv, C, Dh]
            });
        let kept: Vec<Value> = kept.collect();

        let for_prompt =
            graph.op_with("Transpose", &[&query], vec![ints("perm", &[2, 0, 1, 3, 4])]);
        let for_prompt = graph.op("Reshape", &[&for_prompt, &shared.folded]); // [Hkv, B · N · G, Dh]
        let prompt_scores = graph.op("MatMul", &[&for_prompt, &caches.prompt[0]]); // [Hkv, B · N · G, P]
        let for_own = graph.op_with("Transpose", &[&query], vec![ints("perm", &[0, 2, 1, 3, 4])]);
        let for_own = graph.op("Reshape", &[&for_own, &shared.by_row]); // [B, Hkv, N · G, Dh]
        let keys = graph.op_with("Transpose", &[&kept[0]], vec![ints("perm", &[0, 1, 3, 2])]);
        let own_scores = graph.op("MatMul", &[&for_own, &keys]);
        let own_scores = graph.op("Reshape", &[&own_scores, &shared.own_scores]); // [B, Hkv, N, G, C]
        let own_scores = graph.op("Where", &[&shared.visible, &own_scores, &shared.hidden_score]);
        let own_scores =
            graph.op_with("Transpose", &[&own_scores], vec![ints("perm", &[1, 0, 2, 3, 4])]);
        let own_scores = graph.op("Reshape", &[&own_scores, &shared.folded_scores]); // [Hkv, B · N · G, C]
        let scores = graph.op_with("Concat", &[&prompt_scores, &own_scores], vec![int("axis", -1)]);
        let weights = graph.op_with("Softmax", &[&scores], vec![int("axis", -1)]);
        let [of_prompt, of_own] = graph.split(&weights, &shared.lengths);

        let from_prompt = graph.op("MatMul", &[&of_prompt, &caches.prompt[1]]);
        let from_prompt = graph.op("Reshape", &[&from_prompt, &shared.of_prompt]); // [Hkv, B, N, G, Dh]
        let from_prompt =
            graph.op_with("Transpose", &[&from_prompt], vec![ints("perm", &[1, 2, 0, 3, 4])]);
        let of_own = graph.op("Reshape", &[&of_own, &shared.own_weights]); // [Hkv, B, N · G, C]
        let of_own = graph.op_with("Transpose", &[&of_own], vec![ints("perm", &[1, 0, 2, 3])]);
        let from_own = graph.op("MatMul", &[&of_own, &kept[1]]); // [B, Hkv, N · G, Dh]
        let from_own = graph.op("Reshape", &[&from_own, &shared.of_own]);
        let from_own =
            graph.op_with("Transpose", &[&from_own], vec![ints("perm", &[0, 2, 1, 3, 4])]);
        let mixed = graph.op("Add", &[&from_prompt, &from_own]); // [B, N, Hkv, G, Dh]
        let mixed = graph.op("Reshape", &[&mixed, &shared.flat]); // [B · N, H · Dh]
        self.linear(
            &format!("{prefix}.self_attn.o_proj"),
            &mixed,
            num_heads * head_dim,
            hidden_size,
            false,
        )
    }

    fn feed_forward(&mut self, prefix: &str, x: &Value) -> Value {
        let (narrow, wide) = (self.config.hidden_size, self.config.intermediate_size);
        let gate = self.linear(&format!("{prefix}.mlp.gate_proj"), x, narrow, wide, false);
        let up = self.linear(&format!("{prefix}.mlp.up_proj"), x, narrow, wide, false);
        let sigmoid = self.graph.op("Sigmoid", &[&gate]);
        let silu = self.graph.op("Mul", &[&gate, &sigmoid]);
        let gated = self.graph.op("Mul", &[&silu, &up]);
        self.linear(&format!("{prefix}.mlp.down_proj"), &gated, wide, narrow, false)
    }

    fn norm(&mut self, x: &Value, weight: &str) -> Value {
        let weight = self.graph.weight(weight, &[self.config.hidden_size]);
        let attributes = vec![
            int("axis", -1),
            float("epsilon", self.config.norm_eps as f32),
            int("stash_type", 1),
        ];
        self.graph.op_with("SimplifiedLayerNormalization", &[x, &weight], attributes)
    }

    /// x · Wᵀ + b, for W `[out, in]` as it is stored.
    fn linear(&mut self, name: &str, x: &Value, input: usize, out: usize, has_bias: bool) -> Value {
        let weight = self.graph.weight(&format!("{name}.weight"), &[out, input]);
        let mut inputs = vec![x.clone(), weight];
        if has_bias {
            inputs.push(self.graph.weight(&format!("{name}.bias"), &[out]));
        }
        self.graph.op_with("Gemm", &inputs.iter().collect::<Vec<_>>(), vec![int("transB", 1)])
    }
}
