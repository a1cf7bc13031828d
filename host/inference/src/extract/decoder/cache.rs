//! Caches of keys and values, which stay on the device of the model.

use std::path::Path;

use corver_pretrained::ModelConfig;

use crate::extract::graph;
use crate::onnx::graph::Float;
use crate::onnx::{
    DynValue, MemoryInfo, Result, RunResult, RuntimeLibrary, Session, Tensor, session,
};

/// Key and value of each layer, `[slots, Hkv, columns, Dh]`: those of the tokens after the prompt,
/// left-aligned. Columns that were never written are 0.
#[derive(Default)]
pub(super) struct RowCache {
    pub(super) tensors: Vec<DynValue>,
    pub(super) slots: usize,
    pub(super) columns: usize,
}

/// The graphs that create caches and move rows between them.
pub(super) struct CacheGraphs {
    zeros: Session,
    mover: Session,
    sharer: Session,
    /// Memory of the caches.
    memory: MemoryInfo<'static>,
    num_layers: usize,
    num_kv_heads: usize,
    head_dim: usize,
}

impl CacheGraphs {
    pub(super) fn open(
        config: &ModelConfig,
        float: Float,
        gpu: Option<u16>,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let ModelConfig { num_layers, num_kv_heads, head_dim, .. } = *config;
        // These graphs have no weights, so no folder is read.
        let open = |graph| session::build(&graph, Path::new(""), gpu, runtime);
        Ok(Self {
            zeros: open(graph::zeros(float))?,
            mover: open(graph::row_mover(num_kv_heads, head_dim, float))?,
            sharer: open(graph::prompt_sharer(num_kv_heads, head_dim, float))?,
            memory: session::output_memory(gpu).map_err(|error| runtime.unusable(error))?,
            num_layers,
            num_kv_heads,
            head_dim,
        })
    }

    /// Returns a cache of zeros.
    pub(super) fn create(&mut self, slots: usize, columns: usize) -> RunResult<RowCache> {
        let shape = [slots, self.num_kv_heads, columns, self.head_dim].map(|size| size as i64);
        let mut binding = self.zeros.create_binding()?;
        binding.bind_input("shape", &Tensor::from_array(([4], shape.to_vec()))?)?;
        let mut tensors = Vec::with_capacity(2 * self.num_layers);
        for _ in 0..2 * self.num_layers {
            // Bound again, so that every run allocates a tensor.
            binding.bind_output_to_device("zeros", &self.memory)?;
            let mut outputs = self.zeros.run_binding(&binding)?;
            tensors.push(outputs.remove("zeros").expect("it was bound by this name"));
        }
        Ok(RowCache { tensors, slots, columns })
    }

    /// Copies the first `width` columns of rows to another cache. `moves` are pairs of slots, (from,
    /// to).
    pub(super) fn move_rows(
        &mut self,
        from: &RowCache,
        into: &mut RowCache,
        moves: &[(usize, usize)],
        width: usize,
    ) -> RunResult<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let sources: Vec<i64> = moves.iter().map(|(source, _)| *source as i64).collect();
        let targets: Vec<i64> = moves.iter().map(|(_, target)| *target as i64).collect();
        let sources = Tensor::from_array(([moves.len()], sources))?;
        let targets = Tensor::from_array(([moves.len()], targets))?;
        let width = Tensor::from_array(([1], vec![width as i64]))?;
        for (rows, target) in from.tensors.iter().zip(&mut into.tensors) {
            let mut binding = self.mover.create_binding()?;
            binding.bind_input("into", target)?;
            binding.bind_input("rows", rows)?;
            binding.bind_input("from", &sources)?;
            binding.bind_input("to", &targets)?;
            binding.bind_input("width", &width)?;
            binding.bind_output("placed", target)?;
            self.mover.run_binding(&binding)?;
        }
        Ok(())
    }

    /// Returns key `[Hkv, Dh, P]` and value `[Hkv, P, Dh]` of each layer of a cache that has one
    /// row.
    pub(super) fn share_row(&mut self, cache: &RowCache) -> RunResult<Vec<DynValue>> {
        let mut shared = Vec::with_capacity(cache.tensors.len());
        for layer in cache.tensors.chunks_exact(2) {
            let mut binding = self.sharer.create_binding()?;
            binding.bind_input("key", &layer[0])?;
            binding.bind_input("value", &layer[1])?;
            binding.bind_output_to_device("shared_key", &self.memory)?;
            binding.bind_output_to_device("shared_value", &self.memory)?;
            let mut outputs = self.sharer.run_binding(&binding)?;
            for name in ["shared_key", "shared_value"] {
                shared.push(outputs.remove(name).expect("it was bound by this name"));
            }
        }
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use corver_pretrained::ModelFamily;
    use half::bf16;

    use super::*;

    /// One layer of two heads of width 2.
    fn open(float: Float) -> CacheGraphs {
        let config = ModelConfig {
            family: ModelFamily::Llama,
            vocab_size: 8,
            hidden_size: 4,
            intermediate_size: 4,
            num_layers: 1,
            num_heads: 2,
            num_kv_heads: 2,
            head_dim: 2,
            max_positions: 16,
            norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: None,
            tie_embeddings: true,
        };
        CacheGraphs::open(&config, float, None, &RuntimeLibrary::find(None).unwrap()).unwrap()
    }

    /// A cache whose keys are the integers from 0, and whose values are those from 100.
    fn numbered(float: Float, slots: usize, columns: usize) -> RowCache {
        let shape = [slots, 2, columns, 2];
        let length: usize = shape.iter().product();
        let mut tensors = Vec::new();
        for first in [0, 100] {
            let numbers = (first..first + length).map(|n| n as f32);
            tensors.push(match float {
                Float::Bf16 => {
                    let numbers: Vec<bf16> = numbers.map(bf16::from_f32).collect();
                    Tensor::from_array((shape, numbers)).unwrap().into_dyn()
                }
                _ => {
                    let numbers: Vec<f32> = numbers.collect();
                    Tensor::from_array((shape, numbers)).unwrap().into_dyn()
                }
            });
        }
        RowCache { tensors, slots, columns }
    }

    fn numbers(tensor: &DynValue, float: Float) -> Vec<f32> {
        match float {
            Float::Bf16 => {
                let data = tensor.try_extract_tensor::<bf16>().unwrap().1;
                data.iter().map(|x| x.to_f32()).collect()
            }
            _ => tensor.try_extract_tensor::<f32>().unwrap().1.to_vec(),
        }
    }

    #[test]
    fn rows_move_between_caches_in_either_precision() {
        for float in [Float::F32, Float::Bf16] {
            let mut graphs = open(float);
            let mut cache = graphs.create(3, 2).unwrap();
            assert_eq!(numbers(&cache.tensors[0], float), [0.0; 24]);
            // Rows 0 and 1, columns 0 and 1 of 3, to slots 2 and 0.
            graphs.move_rows(&numbered(float, 2, 3), &mut cache, &[(0, 2), (1, 0)], 2).unwrap();
            let keys = [
                [12.0, 13.0, 14.0, 15.0, 18.0, 19.0, 20.0, 21.0],
                [0.0; 8],
                [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0],
            ];
            assert_eq!(numbers(&cache.tensors[0], float), keys.concat(), "{float:?}");
            let values = numbers(&cache.tensors[1], float);
            assert_eq!(values[..4], [112.0, 113.0, 114.0, 115.0], "{float:?}");
        }
    }

    #[test]
    fn shared_prompt_has_transposed_keys_in_either_precision() {
        for float in [Float::F32, Float::Bf16] {
            let shared = open(float).share_row(&numbered(float, 1, 3)).unwrap();
            let keys = [0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0];
            assert_eq!(numbers(&shared[0], float), keys, "{float:?}");
            let values: Vec<f32> = (100..112).map(|n| n as f32).collect();
            assert_eq!(numbers(&shared[1], float), values, "{float:?}");
        }
    }
}
