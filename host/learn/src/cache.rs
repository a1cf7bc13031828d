//! Keys and values of the tokens so far, for decoding.
//!
//! Those of a prompt are held once for all samples that continue it. Those of the completions begin in column 0 of a table of
//! their own, and as all rows grow by one token at a time, every row fills the same columns. So nothing is padded, masked or
//! gathered: a query attends to its prompt and to its own tokens apart, and the two results are joined by their normalisers.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::libtorch::{self, Starts};

/// Keys and values of prompts, one behind the other: per layer `[ΣP, Hkv, Dh]`.
pub(crate) type PromptKeys = Vec<(Tensor, Tensor)>;

/// The cache of the rows that are being decoded.
pub(crate) struct KvCache {
    /// Tokens of each prompt.
    lengths: Vec<i64>,
    /// Rows that continue each prompt; they are next to each other, in the order of the prompts.
    rows: Vec<i64>,
    prompts: PromptKeys,
    /// Query heads that share a key head.
    group: i64,
    /// Per layer, keys and values of the completions `[N, capacity, Hkv, Dh]`.
    own: Vec<(Tensor, Tensor)>,
    /// Columns in use.
    filled: i64,
    /// `[N, 1]` i64, the position of each row's next token.
    next_position: Tensor,
    /// Where flash attention takes all prompts at once: where their keys begin, and their queries.
    starts: Option<(Starts, Starts)>,
}

/// Softmax attention over some of the keys: the mixed values, and the logarithms of the normalisers.
type Part = (Tensor, Tensor);

impl KvCache {
    /// A cache for `rows[p]` continuations of prompt p, whose tokens are `lengths[p]` of `prompts`; `group` query heads share a
    /// key head.
    pub(crate) fn new(
        mut prompts: PromptKeys,
        lengths: &[usize],
        rows: &[usize],
        group: i64,
        room: usize,
    ) -> Result<Self> {
        let lengths: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
        let rows: Vec<i64> = rows.iter().map(|&n| n as i64).collect();
        let n: i64 = rows.iter().sum();
        let mut own = Vec::with_capacity(prompts.len());
        for (keys, values) in &mut prompts {
            (*keys, *values) = (keys.f_contiguous()?, values.f_contiguous()?);
            let (_, heads, width) = keys.size3()?;
            let empty = || Tensor::f_zeros([n, room as i64, heads, width], (keys.f_kind()?, keys.device()));
            own.push((empty()?, empty()?));
        }
        let device = prompts.first().map_or(Device::Cpu, |(keys, _)| keys.device());
        let positions: Vec<i64> =
            rows.iter().zip(&lengths).flat_map(|(&rows, &length)| (0..rows).map(move |_| length)).collect();
        let next_position = Tensor::f_from_slice(&positions)?.f_to_device(device)?.f_unsqueeze(1)?;
        let starts = match prompts.first() {
            Some((keys, _)) if libtorch::has_flash(keys.f_kind()?, device) => {
                Some((Starts::new(&lengths, device)?, query_starts(&rows, group, device)?))
            }
            _ => None,
        };
        Ok(Self { lengths, rows, prompts, group, own, filled: 0, next_position, starts })
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

    /// Takes one token's keys and values `[N, 1, Hkv, Dh]`, and attends with its queries `[N, 1, H, Dh]` to all tokens of its row
    /// → `[N, 1, H · Dh]`.
    pub(crate) fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (keys, values) = &self.own[layer];
        keys.f_narrow(1, self.filled, 1)?.f_copy_(k)?;
        values.f_narrow(1, self.filled, 1)?.f_copy_(v)?;
        let so_far = |x: &Tensor| x.f_narrow(1, 0, self.filled + 1);
        let (n, _, heads, width) = q.size4()?;
        // The query heads that share a key head become its query tokens: exact, and nothing is repeated.
        let q = q.f_view([n, heads / self.group, self.group, width])?;
        let (own, own_normaliser) = attend(&q, &so_far(keys)?, &so_far(values)?)?;
        let (prompt, prompt_normaliser) = self.attend_to_prompts(layer, &q)?;
        let share = prompt_normaliser.f_sub(&own_normaliser)?.f_sigmoid()?.f_unsqueeze(-1)?.f_to_kind(own.f_kind()?)?;
        Ok(own.f_lerp_tensor(&prompt, &share)?.f_reshape([n, 1, heads * width])?)
    }

    /// `q` `[N, Hkv, group, Dh]`.
    fn attend_to_prompts(&self, layer: usize, q: &Tensor) -> Result<Part> {
        let (keys, values) = &self.prompts[layer];
        let (n, heads, group, width) = q.size4()?;
        if let Some((of_prompts, of_queries)) = &self.starts {
            let q = q.f_transpose(1, 2)?.f_reshape([n * group, heads, width])?;
            let (mixed, normaliser) = libtorch::flash_packed(&q, of_queries, keys, values, of_prompts)?;
            let mixed = mixed.f_view([n, group, heads, width])?.f_transpose(1, 2)?;
            return Ok((mixed, normaliser.f_view([heads, n, group])?.f_transpose(0, 1)?));
        }
        let q = q.f_transpose(0, 1)?.f_reshape([1, heads, n * group, width])?;
        let (mut mixed, mut normalisers) = (Vec::new(), Vec::new());
        let (mut key, mut query) = (0, 0);
        for (&length, rows) in self.lengths.iter().zip(&self.rows) {
            if *rows > 0 {
                let of_prompt = |x: &Tensor| x.f_narrow(0, key, length)?.f_unsqueeze(0);
                let q = q.f_narrow(2, query, rows * group)?;
                let part = attend(&q, &of_prompt(keys)?, &of_prompt(values)?)?;
                mixed.push(part.0);
                normalisers.push(part.1);
            }
            key += length;
            query += rows * group;
        }
        let mixed = Tensor::f_cat(&mixed, 2)?.f_view([heads, n, group, width])?.f_transpose(0, 1)?;
        Ok((mixed, Tensor::f_cat(&normalisers, 2)?.f_view([heads, n, group])?.f_transpose(0, 1)?))
    }

    /// Counts the token that every layer has taken.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.filled += 1;
        self.next_position = self.next_position.f_add_scalar(1)?;
        Ok(())
    }

    /// Keeps these rows only, which are in order, with room for `room` further tokens.
    pub(crate) fn keep(&mut self, kept: &[usize], room: usize) -> Result<()> {
        let device = self.next_position.device();
        let mut end = 0;
        for rows in &mut self.rows {
            let start = end;
            end += *rows;
            *rows = kept.iter().filter(|&&row| (start..end).contains(&(row as i64))).count() as i64;
        }
        let kept: Vec<i64> = kept.iter().map(|&row| row as i64).collect();
        let kept = Tensor::f_from_slice(&kept)?.f_to_device(device)?;
        for (keys, values) in &mut self.own {
            for x in [keys, values] {
                let used = x.f_narrow(1, 0, self.filled)?.f_index_select(0, &kept)?;
                *x = used.f_constant_pad_nd([0, 0, 0, 0, 0, room as i64])?;
            }
        }
        self.next_position = self.next_position.f_index_select(0, &kept)?;
        if let Some((_, of_queries)) = &mut self.starts {
            *of_queries = query_starts(&self.rows, self.group, device)?;
        }
        Ok(())
    }
}

fn query_starts(rows: &[i64], group: i64, device: Device) -> Result<Starts> {
    let queries: Vec<i64> = rows.iter().map(|rows| rows * group).collect();
    Starts::new(&queries, device)
}

/// Queries per head from which the fused kernel of the CPU is faster than three plain operations.
const FUSED_QUERIES: i64 = 8;

/// `q` `[B, H, T, Dh]` over `keys` and `values` `[B, S, H, Dh]` → `[B, H, T, Dh]`, and `[B, H, T]` f32. Every query sees every key.
fn attend(q: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Part> {
    let (kind, device) = (q.f_kind()?, q.device());
    if libtorch::has_flash(kind, device) {
        let (mixed, normaliser) = libtorch::flash(&q.f_transpose(1, 2)?, keys, values, false)?;
        return Ok((mixed.f_transpose(1, 2)?, normaliser));
    }
    let (_, _, queries, width) = q.size4()?;
    let values = values.f_transpose(1, 2)?;
    if device == Device::Cpu && queries >= FUSED_QUERIES {
        // It takes the numbers of a head to be next to each other, as they are in the tables.
        let (q, keys) = (q.f_contiguous()?, keys.f_transpose(1, 2)?);
        let mask = None::<&Tensor>;
        return Ok(Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            &q, &keys, &values, 0.0, false, mask, None,
        )?);
    }
    let keys = keys.f_permute([0, 2, 3, 1])?; // [B, H, Dh, S]
    let scores = q.f_div_scalar((width as f64).sqrt())?.f_matmul(&keys)?.f_to_kind(Kind::Float)?;
    let normaliser = scores.f_logsumexp([-1i64].as_slice(), false)?;
    let weights = scores.f_sub(&normaliser.f_unsqueeze(-1)?)?.f_exp()?.f_to_kind(kind)?;
    Ok((weights.f_matmul(&values)?, normaliser))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of a product with the weight at its left: the last dimension is not next to each other.
    fn noise(shape: &[i64]) -> Tensor {
        let n: i64 = shape.iter().product();
        let mut shape = shape.to_vec();
        shape.reverse();
        let mut stream = crate::random::Stream::new(7, "noise", &shape.iter().map(|&n| n as u64).collect::<Vec<_>>());
        let values: Vec<f32> = (0..n).map(|_| 4.0 * stream.uniform() - 2.0).collect();
        Tensor::from_slice(&values).view(shape.as_slice()).permute((0..shape.len() as i64).rev().collect::<Vec<_>>())
    }

    /// One row the plain way: `q` `[1, H, Dh]` over `keys` and `values` `[S, Hkv, Dh]`.
    fn plain(q: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
        let (q, keys, values) = (q.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1));
        Tensor::scaled_dot_product_attention(&q, &keys, &values, None::<&Tensor>, 0.0, false, None, true).view([1, -1])
    }

    #[test]
    fn prompt_and_completion_are_one_sequence() {
        let (lengths, rows) = ([2usize, 5, 3], [4usize, 5, 4]); // one row, and enough for the fused kernel
        let (n, kv_heads, group, width) = (13i64, 2i64, 2i64, 4i64);
        let prompts = (noise(&[10, kv_heads, width]), noise(&[10, kv_heads, width]) * 2);
        let part = |x: &Tensor, p: usize| x.narrow(0, [0, 2, 7][p], lengths[p] as i64);
        let mut cache =
            KvCache::new(vec![(prompts.0.shallow_clone(), prompts.1.shallow_clone())], &lengths, &rows, group, 4)
                .unwrap();
        let mut history: Vec<_> = (0..13usize)
            .map(|row| usize::from(row > 3) + usize::from(row > 8))
            .map(|p| (part(&prompts.0, p), part(&prompts.1, p)))
            .collect();
        for step in 0..6 {
            if step == 3 {
                let kept = [0, 2, 3, 4, 5, 12];
                cache.keep(&kept, 3).unwrap();
                history = kept.iter().map(|&row| (history[row].0.copy(), history[row].1.copy())).collect();
            }
            let n = if step < 3 { n } else { 6 };
            let q = noise(&[n, 1, kv_heads * group, width]);
            let (k, v) = (noise(&[n, 1, kv_heads, width]) + step, noise(&[n, 1, kv_heads, width]) - step);
            let got = cache.attend(0, &q, &k, &v).unwrap();
            cache.advance().unwrap();
            for (row, (keys, values)) in history.iter_mut().enumerate() {
                let row = row as i64;
                *keys = Tensor::cat(&[&*keys, &k.get(row)], 0);
                *values = Tensor::cat(&[&*values, &v.get(row)], 0);
                let difference = (got.get(row) - plain(&q.get(row), keys, values)).abs().max().double_value(&[]);
                assert!(difference < 1e-5, "step {step}, row {row}: {difference}");
            }
        }
    }
}
