//! The key-value cache of decoding.
//!
//! Keys and values of a prompt are stored once for all samples that continue it. Those of the
//! completions begin in column 0 of a separate table. All rows grow by one token at a time, so they
//! fill the same columns, without padding, masks or gathering. A query attends to its prompt and to
//! its completion separately, and the two results are combined by their normalisers.

use tch::{Device, Kind, Tensor};

use crate::device::upload;
use crate::error::Result;
use crate::libtorch::{self, StepTables};
use crate::prompts::{PromptKeys, Prompts, attend};
use crate::rope::{Angles, RotaryEmbedding};

/// The cache of the rows that are decoded.
pub(crate) struct KvCache {
    prompts: Prompts,
    /// Query heads that share a key head.
    group: i64,
    /// Per layer, keys and values of the completions `[N · Hkv, capacity, Dh]`.
    completions: Vec<(Tensor, Tensor)>,
    /// Number of columns of `completions` that are filled.
    filled: i64,
    /// `[N, 1]` i64, position of each row's first token: the length of its prompt.
    first_position: Tensor,
    /// Angles of the next tokens; `None` until they are computed.
    angles: Option<NextAngles>,
}

/// Number of tokens whose angles are computed together: far fewer operations per token on a GPU.
const ANGLE_BLOCK: i64 = 16;

/// Number of a completion's tokens from which libtorch's products in f32 are faster than the fused
/// attention on the CPU. In bf16 they are slower (measured up to 2,048 tokens).
const FUSED_TOKENS: i64 = 512;

/// Angles of the next [`ANGLE_BLOCK`] tokens of each row.
struct NextAngles {
    block: Angles,
    /// Column of the next token.
    column: i64,
}

impl KvCache {
    /// Creates a cache for `rows[p]` completions of prompt p, which has the next `lengths[p]` tokens
    /// of `prompts`. `group` query heads share a key head. Each row has room for `room` tokens.
    pub(crate) fn new(
        prompts: PromptKeys,
        lengths: &[usize],
        rows: &[usize],
        group: i64,
        room: usize,
    ) -> Result<Self> {
        let prompt_lengths: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
        let prompt_rows: Vec<i64> = rows.iter().map(|&n| n as i64).collect();
        let n: i64 = prompt_rows.iter().sum();
        let mut completions = Vec::with_capacity(prompts.len());
        for (keys, _) in &prompts {
            let (_, heads, width) = keys.size3()?;
            let shape = [n * heads, room as i64, width];
            let options = (keys.f_kind()?, keys.device());
            completions.push((Tensor::f_zeros(shape, options)?, Tensor::f_zeros(shape, options)?));
        }
        let mut positions = Vec::new();
        for (&length, &num_rows) in prompt_lengths.iter().zip(rows) {
            positions.resize(positions.len() + num_rows, length);
        }
        let mut first_position = Tensor::f_from_slice(&positions)?.f_unsqueeze(1)?;
        if let Some((keys, _)) = prompts.first() {
            first_position = first_position.f_to_device(keys.device())?;
        }
        Ok(Self {
            prompts: Prompts::new(prompts, &prompt_lengths, prompt_rows, group)?,
            group,
            completions,
            filled: 0,
            first_position,
            angles: None,
        })
    }

    /// Returns the number of tokens that still fit in each row.
    pub(crate) fn room(&self) -> usize {
        let capacity = self.completions.first().map_or(0, |(keys, _)| keys.size()[1]);
        usize::try_from(capacity - self.filled).unwrap_or(0)
    }

    /// Returns the angles of each row's next token.
    pub(crate) fn next_angles(&mut self, rope: &RotaryEmbedding) -> Result<Angles> {
        if self.angles.as_ref().is_none_or(|angles| angles.column == ANGLE_BLOCK) {
            let end = self.filled + ANGLE_BLOCK;
            let options = (Kind::Int64, self.first_position.device());
            let columns = Tensor::f_arange_start(self.filled, end, options)?;
            let block = rope.angles(&self.first_position.f_add(&columns)?)?;
            self.angles = Some(NextAngles { block, column: 0 });
        }
        match &self.angles {
            Some(NextAngles { block, column }) => block.column(*column),
            None => unreachable!("the angles were computed above"),
        }
    }

    /// Returns the part of the table that holds the next key of each row, `[N, 1, Hkv, Dh]`.
    pub(crate) fn next_keys(&self, layer: usize) -> Result<Tensor> {
        self.next_column(&self.completions[layer].0)
    }

    fn next_column(&self, table: &Tensor) -> Result<Tensor> {
        let (_, _, width) = table.size3()?;
        let column = table.f_narrow(1, self.filled, 1)?;
        Ok(column.f_view([self.prompts.num_rows(), -1, 1, width])?.f_transpose(1, 2)?)
    }

    /// Stores the values `[N, 1, Hkv, Dh]` of one token per row, whose keys are in
    /// [`KvCache::next_keys`]. Attends with its queries `[N, 1, H, Dh]` to all tokens of the row →
    /// `[N, 1, H · Dh]`.
    pub(crate) fn attend(&mut self, layer: usize, q: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (n, _, heads, width) = q.size4()?;
        let kv_heads = heads / self.group;
        let (keys, values) = &self.completions[layer];
        self.next_column(values)?.f_copy_(v)?;
        let filled_keys = keys.f_narrow(1, 0, self.filled + 1)?;
        let filled_values = values.f_narrow(1, 0, self.filled + 1)?;
        // The query heads that share a key head become its query tokens. This is exact, and no key
        // is repeated.
        let grouped_q = q.f_reshape([n * kv_heads, self.group, width])?;
        let (completion, completion_normaliser) =
            attend(&grouped_q, &filled_keys, &filled_values, None)?;
        let (prompt_mixed, prompt_normaliser) =
            self.prompts.attend(layer, &grouped_q.f_view([n, kv_heads, self.group, width])?)?;
        // exp(a) / (exp(a) + exp(b)) = sigmoid(a − b): the prompt's part of the softmax.
        let shape = [n, kv_heads, self.group];
        let share = Tensor::f_empty(shape, (completion.f_kind()?, completion.device()))?;
        let prompt_share = prompt_normaliser
            .f_sub(&completion_normaliser.f_view(shape)?)?
            .f_sigmoid_out(&share)?
            .f_unsqueeze(-1)?;
        let mixed = completion
            .f_view([n, kv_heads, self.group, width])?
            .f_lerp_tensor(&prompt_mixed, &prompt_share)?;
        Ok(mixed.f_reshape([n, 1, heads * width])?)
    }

    /// Returns true if [`KvCache::attend_fused`] is faster than [`KvCache::attend`].
    pub(crate) fn is_fused(&self) -> bool {
        let Some((keys, _)) = self.completions.first() else { return false };
        let is_short = self.filled < FUSED_TOKENS || keys.kind() == Kind::BFloat16;
        keys.device() == Device::Cpu && is_short
    }

    /// Stores keys `k` and values `v` `[N, 1, Hkv, Dh]` of one token per row, and attends with its queries
    /// `q` `[N, 1, H, Dh]` to all tokens of the row → `[N, 1, H · Dh]`. `q` and `k` are not rotated yet.
    /// On the CPU, starting the operations of [`KvCache::attend`] takes longer than computing them.
    pub(crate) fn attend_fused(
        &mut self,
        layer: usize,
        [q, k, v]: [&Tensor; 3],
        angles: &Angles,
    ) -> Result<Tensor> {
        let (keys, values) = &self.completions[layer];
        let Some(slots) = self.prompts.slots() else {
            unreachable!("prompts on the CPU have slots")
        };
        let tables = StepTables { keys, values, column: self.filled, slots };
        let slot_q = libtorch::rotate_step([q, k, v], angles.cos_sin(), &tables)?;
        let prompt_attention = self.prompts.attend_slots(layer, &slot_q)?;
        libtorch::attend_step(&slot_q, &tables, &prompt_attention)
    }

    /// Moves to the next column, when every layer has stored its token.
    pub(crate) fn advance(&mut self) {
        self.filled += 1;
        if let Some(angles) = &mut self.angles {
            angles.column += 1;
        }
    }

    /// Retains the rows with these indices, which are ascending, with room for `room` more tokens.
    pub(crate) fn retain_rows(&mut self, retained: &[usize], room: usize) -> Result<()> {
        let n = self.prompts.num_rows();
        self.prompts.retain_rows(retained)?;
        let row_index: Vec<i64> = retained.iter().map(|&row| row as i64).collect();
        let index = upload(&row_index, self.first_position.device())?;
        for (keys, values) in &mut self.completions {
            for table in [keys, values] {
                let (_, capacity, width) = table.size3()?;
                let rows = table.f_view([n, -1, capacity, width])?.f_narrow(2, 0, self.filled)?;
                let filled = rows.f_index_select(0, &index)?.f_flatten(0, 1)?;
                *table = filled.f_constant_pad_nd([0, 0, 0, room as i64])?;
            }
        }
        self.first_position = self.first_position.f_index_select(0, &index)?;
        self.angles = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libtorch::Slots;
    use crate::testing::tiny_config;
    use corver_pretrained::ModelConfig;

    /// Returns a tensor whose last dimension is not contiguous, like a product with the weight as
    /// its left factor.
    fn noise(shape: &[i64]) -> Tensor {
        let n: i64 = shape.iter().product();
        let mut shape = shape.to_vec();
        shape.reverse();
        let mut stream = crate::random::RandomStream::new(
            7,
            "noise",
            &shape.iter().map(|&n| n as u64).collect::<Vec<_>>(),
        );
        let values: Vec<f32> = (0..n).map(|_| 4.0 * stream.uniform() - 2.0).collect();
        Tensor::from_slice(&values)
            .view(shape.as_slice())
            .permute((0..shape.len() as i64).rev().collect::<Vec<_>>())
    }

    /// Computes one row without a cache: `q` `[1, H, Dh]` over `keys` and `values` `[S, Hkv, Dh]`.
    fn plain(q: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
        let (q, keys, values) = (q.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1));
        Tensor::scaled_dot_product_attention(
            &q,
            &keys,
            &values,
            None::<&Tensor>,
            0.0,
            false,
            None,
            true,
        )
        .view([1, -1])
    }

    #[test]
    fn kv_cache_attention_matches_plain_attention() {
        check_attention(Kind::Float, 1e-5, |cache, [q, k, v]| {
            cache.next_keys(0).unwrap().copy_(k);
            cache.attend(0, q, v).unwrap()
        });
    }

    #[test]
    fn fused_attention_matches_plain_attention() {
        let config = ModelConfig { head_dim: 4, ..tiny_config("llama") };
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::BFloat16, 0.05)] {
            let rope = RotaryEmbedding::new(&config, kind, Device::Cpu).unwrap();
            check_attention(kind, tolerance, |cache, heads| {
                let positions = Tensor::zeros([heads[0].size()[0], 1], (Kind::Int64, Device::Cpu));
                cache.attend_fused(0, heads, &rope.angles(&positions).unwrap()).unwrap()
            });
        }
    }

    /// Compares queries and stored keys of rows at different positions with [`Angles::rotate`].
    #[test]
    fn fused_step_rotates_each_row_by_its_position() {
        let config = ModelConfig { head_dim: 4, ..tiny_config("llama") };
        let (n, kv_heads, group, width) = (3i64, 2i64, 2i64, 4i64);
        for (kind, tolerance) in [(Kind::Float, 1e-6), (Kind::BFloat16, 0.02)] {
            let positions = Tensor::from_slice(&[7i64, 8, 0, 1, 100, 101]).view([n, 2]);
            let rope = RotaryEmbedding::new(&config, kind, Device::Cpu).unwrap();
            let angles = rope.angles(&positions).unwrap().column(1).unwrap();
            let q = noise(&[n, 1, kv_heads * group, width]).to_kind(kind);
            let k = noise(&[n, 1, kv_heads, width]).to_kind(kind) * 0.5;
            let [keys, values] =
                [0, 1].map(|_| Tensor::zeros([n * kv_heads, 5, width], (kind, Device::Cpu)));
            let slots = Slots { prompts: 1, per_prompt: n, of_row: None };
            let tables = StepTables { keys: &keys, values: &values, column: 3, slots };
            let slot_q =
                libtorch::rotate_step([&q, &k, &q.narrow(2, 0, 2)], angles.cos_sin(), &tables);
            let got_q = slot_q.unwrap().view([kv_heads, n, group, width]).transpose(0, 1);
            let expected_q = angles.rotate(&q).unwrap().view([n, kv_heads, group, width]);
            let got_k = keys.select(1, 3).view([n, 1, kv_heads, width]);
            let got_v = values.select(1, 3).view([n, 1, kv_heads, width]);
            for (got, expected) in [
                (got_q, expected_q),
                (got_k, angles.rotate(&k).unwrap()),
                (got_v, q.narrow(2, 0, 2)),
            ] {
                let difference = (got - expected).abs().max().double_value(&[]);
                assert!(difference <= tolerance, "{kind:?}: {difference}");
            }
            assert_eq!(
                keys.abs().sum(kind).double_value(&[]),
                keys.select(1, 3).abs().sum(kind).double_value(&[])
            );
        }
    }

    /// Decodes six tokens, of fewer rows after three. `attend` stores keys and values, and attends.
    fn check_attention(
        kind: Kind,
        tolerance: f64,
        mut attend: impl FnMut(&mut KvCache, [&Tensor; 3]) -> Tensor,
    ) {
        let noise = |shape: &[i64]| noise(shape).to_kind(kind);
        let lengths = [2usize, 5, 3];
        let rows = [4usize, 5, 4]; // one row, and enough for the fused kernel
        let (n, kv_heads, group, width) = (13i64, 2i64, 2i64, 4i64);
        let prompts = (noise(&[10, kv_heads, width]), noise(&[10, kv_heads, width]) * 2);
        let part = |x: &Tensor, p: usize| x.narrow(0, [0, 2, 7][p], lengths[p] as i64);
        let mut cache = KvCache::new(
            vec![(prompts.0.shallow_clone(), prompts.1.shallow_clone())],
            &lengths,
            &rows,
            group,
            4,
        )
        .unwrap();
        let mut history: Vec<_> = (0..13usize)
            .map(|row| usize::from(row > 3) + usize::from(row > 8))
            .map(|p| (part(&prompts.0, p), part(&prompts.1, p)))
            .collect();
        for step in 0..6 {
            if step == 3 {
                let retained = [0, 2, 3, 4, 5, 12];
                cache.retain_rows(&retained, 3).unwrap();
                history = retained
                    .iter()
                    .map(|&row| (history[row].0.copy(), history[row].1.copy()))
                    .collect();
            }
            let n = if step < 3 { n } else { 6 };
            let q = noise(&[n, 1, kv_heads * group, width]);
            let (k, v) =
                (noise(&[n, 1, kv_heads, width]) + step, noise(&[n, 1, kv_heads, width]) - step);
            let got = attend(&mut cache, [&q, &k, &v]);
            cache.advance();
            for (row, (keys, values)) in history.iter_mut().enumerate() {
                let row = row as i64;
                *keys = Tensor::cat(&[&*keys, &k.get(row)], 0);
                *values = Tensor::cat(&[&*values, &v.get(row)], 0);
                let difference =
                    (got.get(row) - plain(&q.get(row), keys, values)).abs().max().double_value(&[]);
                assert!(difference < tolerance, "step {step}, row {row}: {difference}");
            }
        }
    }
}
