//! Compares the decoder with a simple one: f64, plain loops, one token at a time, and no code of the
//! crate. It follows the published definitions (Llama, Qwen2, Qwen3 and OLMo-2 model files of
//! `transformers`).

use std::collections::HashMap;
use std::path::Path;

use corver_core::Sampling;
use corver_learn::{Model, Precision, sample::sample};
use corver_pretrained::{Llama3Scaling, ModelConfig, ModelFamily};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tch::{Device, Tensor};

struct Reference {
    config: ModelConfig,
    weights: HashMap<String, Vec<f64>>,
}

impl Reference {
    /// Multiplies `x` with the transpose of an `[out, in]` weight, and adds its bias if it has one.
    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = &self.weights[&format!("{name}.weight")];
        let bias = self.weights.get(&format!("{name}.bias"));
        let row = |(o, w): (usize, &[f64])| dot(w, x) + bias.map_or(0.0, |b| b[o]);
        weight.chunks(x.len()).enumerate().map(row).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let root = (dot(x, x) / x.len() as f64 + self.config.norm_eps).sqrt();
        x.iter().zip(&self.weights[name]).map(|(x, w)| x / root * w).collect()
    }

    /// Rotates one head in place; dimension i turns with i + d/2.
    fn rotate(&self, head: &mut [f64], position: usize) {
        let half = head.len() / 2;
        for i in 0..half {
            let mut frequency = self.config.rope_theta.powf(-(i as f64) / half as f64);
            if let Some(s) = self.config.rope_scaling {
                let wavelength = std::f64::consts::TAU / frequency;
                let low = s.original_max_position_embeddings / s.low_freq_factor;
                let high = s.original_max_position_embeddings / s.high_freq_factor;
                if wavelength > low {
                    frequency /= s.factor;
                } else if wavelength >= high {
                    let smooth = (s.original_max_position_embeddings / wavelength
                        - s.low_freq_factor)
                        / (s.high_freq_factor - s.low_freq_factor);
                    frequency = (1.0 - smooth) * frequency / s.factor + smooth * frequency;
                }
            }
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (a, b) = (head[i], head[i + half]);
            (head[i], head[i + half]) = (a * cos - b * sin, b * cos + a * sin);
        }
    }

    /// Returns the logits after every token.
    fn logits(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let c = &self.config;
        let embedding = &self.weights["model.embed_tokens.weight"];
        let mut xs: Vec<Vec<f64>> = tokens
            .iter()
            .map(|&t| embedding[t as usize * c.hidden_size..][..c.hidden_size].to_vec())
            .collect();
        for layer in 0..c.num_layers {
            let prefix = format!("model.layers.{layer}");
            let after = |x: &[f64], block: Vec<f64>| -> Vec<f64> {
                x.iter().zip(block).map(|(a, b)| a + b).collect()
            };
            let (before, behind) = match c.family {
                ModelFamily::Olmo2 => {
                    (None, Some(["post_attention_layernorm", "post_feedforward_layernorm"]))
                }
                _ => (Some(["input_layernorm", "post_attention_layernorm"]), None),
            };
            let normed = |names: Option<[&str; 2]>, n: usize, x: &[f64]| match names {
                Some(names) => self.norm(&format!("{prefix}.{}.weight", names[n]), x),
                None => x.to_vec(),
            };
            let inputs: Vec<Vec<f64>> = xs.iter().map(|x| normed(before, 0, x)).collect();
            let mixed = self.attention(&format!("{prefix}.self_attn"), &inputs);
            xs = xs.iter().zip(mixed).map(|(x, m)| after(x, normed(behind, 0, &m))).collect();
            for x in &mut xs {
                let input = normed(before, 1, x);
                let gate = self.linear(&format!("{prefix}.mlp.gate_proj"), &input);
                let up = self.linear(&format!("{prefix}.mlp.up_proj"), &input);
                let inner: Vec<f64> =
                    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                let out = self.linear(&format!("{prefix}.mlp.down_proj"), &inner);
                *x = after(x, normed(behind, 1, &out));
            }
        }
        let head = if c.tie_embeddings { "model.embed_tokens" } else { "lm_head" };
        xs.iter().map(|x| self.linear(head, &self.norm("model.norm.weight", x))).collect()
    }

    fn attention(&self, prefix: &str, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let c = &self.config;
        let project = |part: &str,
                       heads: usize,
                       position: usize,
                       x: &[f64],
                       is_value: bool|
         -> Vec<Vec<f64>> {
            let mut y = self.linear(&format!("{prefix}.{part}_proj"), x);
            let norm = format!("{prefix}.{part}_norm.weight");
            if c.family == ModelFamily::Olmo2 && !is_value {
                y = self.norm(&norm, &y);
            }
            let mut y: Vec<Vec<f64>> = y.chunks(c.head_dim).map(<[f64]>::to_vec).collect();
            assert_eq!(y.len(), heads);
            if !is_value {
                for head in &mut y {
                    if c.family == ModelFamily::Qwen3 {
                        *head = self.norm(&norm, head);
                    }
                    self.rotate(head, position);
                }
            }
            y
        };
        let all = |part: &str, heads, is_value| -> Vec<Vec<Vec<f64>>> {
            inputs.iter().enumerate().map(|(t, x)| project(part, heads, t, x, is_value)).collect()
        };
        let q = all("q", c.num_heads, false);
        let k = all("k", c.num_kv_heads, false);
        let v = all("v", c.num_kv_heads, true);
        (0..inputs.len())
            .map(|t| {
                let mut joined = Vec::new();
                for (h, query) in q[t].iter().enumerate() {
                    let shared = h / (c.num_heads / c.num_kv_heads);
                    let scores: Vec<f64> = (0..=t)
                        .map(|s| dot(query, &k[s][shared]) / (c.head_dim as f64).sqrt())
                        .collect();
                    let top = scores.iter().copied().fold(f64::MIN, f64::max);
                    let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                    let mut mixed = vec![0.0; c.head_dim];
                    for (score, values) in scores.iter().zip(&v) {
                        let share = (score - top).exp() / total;
                        mixed
                            .iter_mut()
                            .zip(&values[shared])
                            .for_each(|(m, value)| *m += share * value);
                    }
                    joined.extend(mixed);
                }
                self.linear(&format!("{prefix}.o_proj"), &joined)
            })
            .collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rewrites a model folder with larger and less regular weights (norms that are not 1, biases that
/// are not 0), so that every part affects the result. Returns the weights as f64.
fn perturb_weights(folder: &Path) -> HashMap<String, Vec<f64>> {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = stored
        .iter()
        .map(|(name, view)| {
            let values = view.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            let perturb = |(i, x): (usize, f32)| {
                8.0 * x.clamp(-0.2, 0.2) + 0.3 * (i as f32 * 1.7 + name.len() as f32).sin()
            };
            (name.to_owned(), view.shape().to_vec(), values.enumerate().map(perturb).collect())
        })
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let raw: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, x)| x.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let mut views = Vec::new();
    for ((name, shape, _), bytes) in tensors.iter().zip(&raw) {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap();
        views.push((name.as_str(), view));
    }
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    tensors.into_iter().map(|(name, _, x)| (name, x.into_iter().map(f64::from).collect())).collect()
}

fn config(family: ModelFamily) -> ModelConfig {
    ModelConfig {
        family,
        vocab_size: 19,
        hidden_size: 12,
        intermediate_size: 20,
        num_layers: 2,
        num_heads: 6,
        num_kv_heads: 2,
        head_dim: if family == ModelFamily::Qwen2 { 2 } else { 4 }, // Qwen3's differs from hidden_size / num_heads
        max_positions: 64,
        norm_eps: 1e-5,
        rope_theta: 100.0,
        rope_scaling: (family == ModelFamily::Llama).then_some(Llama3Scaling {
            factor: 4.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 16.0,
        }),
        tie_embeddings: matches!(family, ModelFamily::Qwen2 | ModelFamily::Qwen3),
    }
}

fn model_and_reference(family: ModelFamily) -> (Model, Reference) {
    let folder = tempfile::tempdir().unwrap();
    Model::random(config(family), 11, Device::Cpu).unwrap().save(folder.path()).unwrap();
    let weights = perturb_weights(folder.path());
    let model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    (model, Reference { config: config(family), weights })
}

const FAMILIES: [ModelFamily; 4] =
    [ModelFamily::Llama, ModelFamily::Qwen2, ModelFamily::Qwen3, ModelFamily::Olmo2];

#[test]
fn logits_match_plain_implementation() {
    let tokens: [u32; 14] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 18, 0];
    for family in FAMILIES {
        let (model, reference) = model_and_reference(family);
        let ids: Vec<i64> = tokens.iter().map(|&t| i64::from(t)).collect();
        let logits =
            model.logits(&model.hidden(&Tensor::from_slice(&ids).view([1, -1])).unwrap()).unwrap();
        let expected = reference.logits(&tokens);
        let size = expected.iter().flatten().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(size > 0.5, "{family:?}: the logits are too small to compare, {size}");
        for (t, row) in expected.iter().enumerate() {
            for (v, e) in row.iter().enumerate() {
                let got = logits.double_value(&[0, t as i64, v as i64]);
                assert!(
                    (got - e).abs() < 1e-4 * size,
                    "{family:?}, token {t}, logit {v}: {got} {e}"
                );
            }
        }
    }
}

#[test]
fn greedy_decoding_matches_plain_implementation() {
    for family in FAMILIES {
        let (model, reference) = model_and_reference(family);
        let prompts: [&[u32]; 2] = [&[1, 2, 3, 4, 5], &[7, 8]];
        let completions = sample(&model, &prompts, &Sampling::greedy(10), &[], 0).unwrap();
        for (prompt, completion) in prompts.iter().zip(completions) {
            let mut tokens = prompt.to_vec();
            for _ in 0..10 {
                let last = reference.logits(&tokens).pop().unwrap();
                let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
                tokens.push(best as u32);
            }
            assert_eq!(completion.tokens, tokens[prompt.len()..], "{family:?}");
        }
    }
}
