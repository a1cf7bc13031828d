//! A decoder written out as sums over one sequence, in f64: nothing padded, nothing cached.

use std::collections::BTreeMap;
use std::path::Path;

use corver_pretrained::{ModelConfig, ModelFamily};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

pub struct Decoder {
    pub config: ModelConfig,
    weights: BTreeMap<String, Weight>,
}

struct Weight {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Decoder {
    /// Weights large enough that attention is not flat and that a mistake anywhere reaches the
    /// logits.
    pub fn new(config: ModelConfig) -> Self {
        let (d, wide) = (config.hidden_size, config.intermediate_size);
        let (query, key) =
            (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        let mut sizes = vec![("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, d])];
        for n in 0..config.num_layers {
            let (query_norm, key_norm) = match config.family {
                ModelFamily::Olmo2 => (query, key),
                _ => (config.head_dim, config.head_dim),
            };
            let parts = [
                ("input_layernorm.weight", vec![d]),
                ("self_attn.q_norm.weight", vec![query_norm]),
                ("self_attn.k_norm.weight", vec![key_norm]),
                ("self_attn.q_proj.weight", vec![query, d]),
                ("self_attn.q_proj.bias", vec![query]),
                ("self_attn.k_proj.weight", vec![key, d]),
                ("self_attn.k_proj.bias", vec![key]),
                ("self_attn.v_proj.weight", vec![key, d]),
                ("self_attn.v_proj.bias", vec![key]),
                ("self_attn.o_proj.weight", vec![d, query]),
                ("post_attention_layernorm.weight", vec![d]),
                ("post_feedforward_layernorm.weight", vec![d]),
                ("mlp.gate_proj.weight", vec![wide, d]),
                ("mlp.up_proj.weight", vec![wide, d]),
                ("mlp.down_proj.weight", vec![d, wide]),
            ];
            let is_part = |part: &str| match part {
                "input_layernorm.weight" => config.family != ModelFamily::Olmo2,
                "post_feedforward_layernorm.weight" => config.family == ModelFamily::Olmo2,
                "self_attn.q_norm.weight" | "self_attn.k_norm.weight" => {
                    matches!(config.family, ModelFamily::Qwen3 | ModelFamily::Olmo2)
                }
                _ => config.family == ModelFamily::Qwen2 || !part.ends_with("bias"),
            };
            let parts = parts.into_iter().filter(|(part, _)| is_part(part));
            sizes.extend(parts.map(|(part, size)| (format!("model.layers.{n}.{part}"), size)));
        }
        sizes.push(("model.norm.weight".to_owned(), vec![d]));
        if !config.tie_embeddings {
            sizes.push(("lm_head.weight".to_owned(), vec![config.vocab_size, d]));
        }
        let weight = |(n, (name, shape)): (usize, (String, Vec<usize>))| {
            let centre = if name.ends_with("norm.weight") { 1.0 } else { 0.0 };
            let value = |i: usize| centre + 0.3 * (i as f32 * (1.7 + n as f32)).sin();
            let values = (0..shape.iter().product()).map(value).collect();
            (name, Weight { shape, values })
        };
        Self { weights: sizes.into_iter().enumerate().map(weight).collect(), config }
    }

    /// config.json and model.safetensors.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config.to_json("float32").to_string())
            .unwrap();
        let bytes: Vec<(&String, &Weight, Vec<u8>)> = self
            .weights
            .iter()
            .map(|(name, weight)| {
                (name, weight, weight.values.iter().flat_map(|x| x.to_le_bytes()).collect())
            })
            .collect();
        let views = bytes.iter().map(|(name, weight, bytes)| {
            (name, TensorView::new(Dtype::F32, weight.shape.clone(), bytes).unwrap())
        });
        std::fs::write(
            folder.join("model.safetensors"),
            safetensors::serialize(views, None).unwrap(),
        )
        .unwrap();
    }

    /// `[T][V]`
    pub fn logits(&self, tokens: &[i64]) -> Vec<Vec<f64>> {
        let embedding = self.rows("model.embed_tokens.weight");
        let mut hidden: Vec<Vec<f64>> =
            tokens.iter().map(|&id| embedding[id as usize].clone()).collect();
        for n in 0..self.config.num_layers {
            let at = |part: &str| format!("model.layers.{n}.{part}");
            let feed_forward =
                |rows: &[Vec<f64>]| rows.iter().map(|x| self.feed_forward(&at("mlp"), x)).collect();
            if self.config.family == ModelFamily::Olmo2 {
                let mixed = self.attention(&at("self_attn"), &hidden);
                add(&mut hidden, self.norms(&mixed, &at("post_attention_layernorm")));
                let fed: Vec<Vec<f64>> = feed_forward(&hidden);
                add(&mut hidden, self.norms(&fed, &at("post_feedforward_layernorm")));
                continue;
            }
            let normed = self.norms(&hidden, &at("input_layernorm"));
            add(&mut hidden, self.attention(&at("self_attn"), &normed));
            let normed = self.norms(&hidden, &at("post_attention_layernorm"));
            add(&mut hidden, feed_forward(&normed));
        }
        let head = if self.config.tie_embeddings { "model.embed_tokens" } else { "lm_head" };
        self.norms(&hidden, "model.norm").iter().map(|x| self.linear(head, x)).collect()
    }

    fn attention(&self, part: &str, normed: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let ModelConfig { num_heads, num_kv_heads, head_dim, .. } = self.config;
        // `[T][heads][Dh]`
        let heads = |name: &str| -> Vec<Vec<Vec<f64>>> {
            let bias = format!("{part}.{name}.bias");
            let of_token = |x: &Vec<f64>| {
                let mut y = [self.linear(&format!("{part}.{name}"), x)];
                if self.weights.contains_key(&bias) {
                    add(&mut y, self.rows(&bias));
                }
                let norm = format!("{part}.{}", name.replace("proj", "norm"));
                if self.config.family == ModelFamily::Olmo2 && name != "v_proj" {
                    y[0] = self.norm(&y[0], &norm);
                }
                let mut heads: Vec<Vec<f64>> = y[0].chunks(head_dim).map(<[f64]>::to_vec).collect();
                if self.config.family == ModelFamily::Qwen3 && name != "v_proj" {
                    heads = self.norms(&heads, &norm);
                }
                heads
            };
            normed.iter().map(of_token).collect()
        };
        let [mut query, mut key] = ["q_proj", "k_proj"].map(heads);
        let value = heads("v_proj");
        for heads in [&mut query, &mut key] {
            heads
                .iter_mut()
                .enumerate()
                .for_each(|(t, heads)| heads.iter_mut().for_each(|head| self.rotate(head, t)));
        }
        let mix = |t: usize, head: usize| -> Vec<f64> {
            let shared = head / (num_heads / num_kv_heads);
            let score =
                |s: usize| (dot(&query[t][head], &key[s][shared]) / (head_dim as f64).sqrt()).exp();
            let scores: Vec<f64> = (0..=t).map(score).collect();
            let total: f64 = scores.iter().sum();
            let mixed = |i: usize| (0..=t).map(|s| scores[s] / total * value[s][shared][i]).sum();
            (0..head_dim).map(mixed).collect()
        };
        let mixed = |t| (0..num_heads).flat_map(|head| mix(t, head)).collect::<Vec<f64>>();
        (0..normed.len()).map(|t| self.linear(&format!("{part}.o_proj"), &mixed(t))).collect()
    }

    fn rotate(&self, head: &mut [f64], position: usize) {
        let half = head.len() / 2;
        for (i, frequency) in self.config.rope_frequencies().into_iter().enumerate() {
            let angle = position as f64 * frequency;
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * angle.cos() - b * angle.sin();
            head[i + half] = b * angle.cos() + a * angle.sin();
        }
    }

    fn feed_forward(&self, part: &str, x: &[f64]) -> Vec<f64> {
        let gate = self.linear(&format!("{part}.gate_proj"), x);
        let up = self.linear(&format!("{part}.up_proj"), x);
        let gated: Vec<f64> =
            gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        self.linear(&format!("{part}.down_proj"), &gated)
    }

    fn norms(&self, rows: &[Vec<f64>], part: &str) -> Vec<Vec<f64>> {
        rows.iter().map(|row| self.norm(row, part)).collect()
    }

    fn norm(&self, x: &[f64], part: &str) -> Vec<f64> {
        let weight = &self.rows(&format!("{part}.weight"))[0];
        let root = (dot(x, x) / x.len() as f64 + self.config.norm_eps).sqrt();
        x.iter().zip(weight).map(|(x, weight)| x / root * weight).collect()
    }

    fn linear(&self, part: &str, x: &[f64]) -> Vec<f64> {
        self.rows(&format!("{part}.weight")).iter().map(|row| dot(row, x)).collect()
    }

    fn rows(&self, name: &str) -> Vec<Vec<f64>> {
        let Weight { shape, values } = &self.weights[name];
        values
            .chunks(shape[shape.len() - 1])
            .map(|row| row.iter().map(|&x| f64::from(x)).collect())
            .collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(hidden: &mut [Vec<f64>], more: Vec<Vec<f64>>) {
    for (row, more) in hidden.iter_mut().zip(more) {
        row.iter_mut().zip(more).for_each(|(x, more)| *x += more);
    }
}
