//! Keys and values of the tokens so far, for decoding.
//!
//! Those of a prompt are held once for all samples that continue it. Those of the completions begin
//! in column 0 of a table of their own, and as all rows grow by one token at a time, every row
//! fills the same columns: nothing of it is padded, masked or gathered. A query attends to its
//! prompt and to its own tokens apart, and the two results are joined by their normalisers.

use tch::Tensor;

use crate::error::Result;
use crate::prompts::{PromptKeys, Prompts, attend};

/// The cache of the rows that are being decoded.
pub(crate) struct KvCache {
    prompts: Prompts,
    /// Query heads that share a key head.
    group: i64,
    /// Per layer, keys and values of the completions `[N · Hkv, capacity, Dh]`.
    own: Vec<(Tensor, Tensor)>,
    /// Columns in use.
    filled: i64,
    /// `[N, 1]` i64, the position of each row's next token.
    next_position: Tensor,
}

impl KvCache {
    /// A cache for `rows[p]` continuations of prompt p, whose tokens are `lengths[p]` of `prompts`;
    /// `group` query heads share a key head.
    pub(crate) fn new(
        prompts: PromptKeys,
        lengths: &[usize],
        rows: &[usize],
        group: i64,
        room: usize,
    ) -> Result<Self> {
        let [lengths, rows] =
            [lengths, rows].map(|numbers| numbers.iter().map(|&n| n as i64).collect::<Vec<_>>());
        let n: i64 = rows.iter().sum();
        let mut own = Vec::with_capacity(prompts.len());
        for (keys, _) in &prompts {
            let (_, heads, width) = keys.size3()?;
            let empty = || {
                Tensor::f_zeros([n * heads, room as i64, width], (keys.f_kind()?, keys.device()))
            };
            own.push((empty()?, empty()?));
        }
        let positions: Vec<i64> = rows
            .iter()
            .zip(&lengths)
            .flat_map(|(&rows, &length)| (0..rows).map(move |_| length))
            .collect();
        let mut next_position = Tensor::f_from_slice(&positions)?.f_unsqueeze(1)?;
        if let Some((keys, _)) = prompts.first() {
            next_position = next_position.f_to_device(keys.device())?;
        }
        Ok(Self {
            prompts: Prompts::new(prompts, &lengths, rows, group)?,
            group,
            own,
            filled: 0,
            next_position,
        })
    }

    /// Tokens that still fit.
    pub(crate) fn room(&self) -> usize {
        let capacity = self.own.first().map_or(0, |(keys, _)| keys.size()[1]);
        usize::try_from(capacity - self.filled).unwrap_or(0)
    }

    /// `[N, 1]` i64.
    pub(crate) fn next_position(&self) -> &Tensor {
        &self.next_position
    }

    /// Takes one token's keys and values `[N, 1, Hkv, Dh]`, and attends with its queries `[N, 1, H,
    /// Dh]` to all tokens of its row → `[N, 1, H · Dh]`.
    pub(crate) fn attend(
        &mut self,
        layer: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<Tensor> {
        let (n, _, heads, width) = q.size4()?;
        let kv_heads = heads / self.group;
        let (keys, values) = &self.own[layer];
        for (table, new) in [(keys, k), (values, v)] {
            let column = table.f_narrow(1, self.filled, 1)?.f_view([n, kv_heads, 1, width])?;
            column.f_transpose(1, 2)?.f_copy_(new)?;
        }
        let so_far = |x: &Tensor| x.f_narrow(1, 0, self.filled + 1);
        // The query heads that share a key head become its query tokens: exact, and nothing is
        // repeated.
        let own_q = q.f_reshape([n * kv_heads, self.group, width])?;
        let (own, own_normaliser) = attend(&own_q, &so_far(keys)?, &so_far(values)?, None)?;
        let (prompt, prompt_normaliser) =
            self.prompts.attend(layer, &own_q.f_view([n, kv_heads, self.group, width])?)?;
        let share = prompt_normaliser
            .f_sub(&own_normaliser.f_view([n, kv_heads, self.group])?)?
            .f_sigmoid()?;
        let own = own.f_view([n, kv_heads, self.group, width])?;
        let share = share.f_unsqueeze(-1)?.f_to_kind(own.f_kind()?)?;
        Ok(own.f_lerp_tensor(&prompt, &share)?.f_reshape([n, 1, heads * width])?)
    }

    /// Counts the token that every layer has taken.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.filled += 1;
        self.next_position = self.next_position.f_add_scalar(1)?;
        Ok(())
    }

    /// Keeps these rows only, which are in order, with room for `room` further tokens.
    pub(crate) fn keep(&mut self, kept: &[usize], room: usize) -> Result<()> {
        let n = self.prompts.num_rows();
        self.prompts.keep(kept)?;
        let kept: Vec<i64> = kept.iter().map(|&row| row as i64).collect();
        let kept = Tensor::f_from_slice(&kept)?.f_to_device(self.next_position.device())?;
        for (keys, values) in &mut self.own {
            for x in [keys, values] {
                let (_, _, width) = x.size3()?;
                let of_rows = x.f_view([n, -1, x.size()[1], width])?.f_narrow(2, 0, self.filled)?;
                let used = of_rows.f_index_select(0, &kept)?.f_flatten(0, 1)?;
                *x = used.f_constant_pad_nd([0, 0, 0, room as i64])?;
            }
        }
        self.next_position = self.next_position.f_index_select(0, &kept)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of a product with the weight at its left: the last dimension is not next to
    /// each other.
    fn noise(shape: &[i64]) -> Tensor {
        let n: i64 = shape.iter().product();
        let mut shape = shape.to_vec();
        shape.reverse();
        let mut stream = crate::random::Stream::new(
            7,
            "noise",
            &shape.iter().map(|&n| n as u64).collect::<Vec<_>>(),
        );
        let values: Vec<f32> = (0..n).map(|_| 4.0 * stream.uniform() - 2.0).collect();
        Tensor::from_slice(&values)
            .view(shape.as_slice())
            .permute((0..shape.len() as i64).rev().collect::<Vec<_>>())
    }

    /// One row the plain way: `q` `[1, H, Dh]` over `keys` and `values` `[S, Hkv, Dh]`.
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
        let (lengths, rows) = ([2usize, 5, 3], [4usize, 5, 4]); // one row, and enough for the fused kernel
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
                let kept = [0, 2, 3, 4, 5, 12];
                cache.keep(&kept, 3).unwrap();
                history = kept
                    .iter()
                    .map(|&row| (history[row].0.copy(), history[row].1.copy()))
                    .collect();
            }
            let n = if step < 3 { n } else { 6 };
            let q = noise(&[n, 1, kv_heads * group, width]);
            let (k, v) =
                (noise(&[n, 1, kv_heads, width]) + step, noise(&[n, 1, kv_heads, width]) - step);
            let got = cache.attend(0, &q, &k, &v).unwrap();
            cache.advance().unwrap();
            for (row, (keys, values)) in history.iter_mut().enumerate() {
                let row = row as i64;
                *keys = Tensor::cat(&[&*keys, &k.get(row)], 0);
                *values = Tensor::cat(&[&*values, &v.get(row)], 0);
                let difference =
                    (got.get(row) - plain(&q.get(row), keys, values)).abs().max().double_value(&[]);
                assert!(difference < 1e-5, "step {step}, row {row}: {difference}");
            }
        }
    }
}
