//! Keys and values of the tokens so far, for decoding.
//!
//! Rows have prompts of different lengths. The cache is aligned at the right: every prompt ends in the same column, so
//! that each further token of all rows goes into one and the same column. The columns before a shorter prompt are
//! masked out; positions are counted from the first real token.

use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// The prompts' keys and values, one row per prompt.
pub(crate) struct Prefix {
    /// Per layer, keys and values `[Q, Hkv, P, Dh]`, shorter prompts padded at the right.
    pub(crate) layers: Vec<(Tensor, Tensor)>,
    /// `[Q]` tokens of each prompt.
    pub(crate) lengths: Vec<usize>,
}

/// The cache of the rows that are being decoded.
pub(crate) struct KvCache {
    /// Per layer, keys and values `[N, Hkv, capacity, Dh]`.
    layers: Vec<(Tensor, Tensor)>,
    /// Columns in use.
    filled: i64,
    /// `[N, 1]` i64, the position of each row's next token.
    next_position: Tensor,
    /// `[N, 1, 1, capacity]` bool, `true` where a row may look; `None` where all prompts are equally long.
    mask: Option<Tensor>,
}

impl Prefix {
    /// A cache whose row i continues prompt `rows[i]`, with room for `room` further tokens.
    pub(crate) fn expand(&self, rows: &[usize], room: usize) -> Result<KvCache> {
        let longest = *self.lengths.iter().max().unwrap_or(&0) as i64;
        let device = self.layers.first().map_or(Device::Cpu, |(k, _)| k.device());
        let lengths: Vec<i64> = rows.iter().map(|&r| self.lengths[r] as i64).collect();
        let lengths = Tensor::f_from_slice(&lengths)?.f_to_device(device)?.f_unsqueeze(1)?; // [N, 1]
        let rows: Vec<i64> = rows.iter().map(|&r| r as i64).collect();
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(device)?;
        let columns = Tensor::f_arange(longest, (Kind::Int64, device))?.f_unsqueeze(0)?; // [1, P]
        let source = columns.f_sub(&lengths.f_neg()?.f_add_scalar(longest)?)?; // [N, P], negative in the padding
        let padded = self.lengths.iter().any(|&n| n as i64 != longest);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (k, v) in &self.layers {
            let spread = |x: &Tensor| -> Result<Tensor> {
                let mut x = x.f_index_select(0, &rows)?;
                if padded {
                    let (n, heads, _, width) = x.size4()?;
                    let index = source.f_clamp_min(0)?.f_view([n, 1, longest, 1])?;
                    x = x.f_gather(2, &index.f_expand([n, heads, longest, width], false)?, false)?;
                }
                Ok(x.f_constant_pad_nd([0, 0, 0, room as i64])?)
            };
            layers.push((spread(k)?, spread(v)?));
        }
        let mask = match padded {
            false => None,
            true => {
                let prompt = source.f_ge(0)?; // [N, P]
                let later = Tensor::f_ones([prompt.size()[0], room as i64], (Kind::Bool, device))?;
                Some(Tensor::f_cat(&[prompt, later], 1)?.f_unsqueeze(1)?.f_unsqueeze(1)?)
            }
        };
        Ok(KvCache { layers, filled: longest, next_position: lengths, mask })
    }
}

impl KvCache {
    /// Tokens that still fit.
    pub(crate) fn room(&self) -> usize {
        let capacity = self.layers.first().map_or(0, |(k, _)| k.size()[2]);
        usize::try_from(capacity - self.filled).unwrap_or(0)
    }

    /// `[N, 1]` i64.
    pub(crate) fn next_position(&self) -> &Tensor {
        &self.next_position
    }

    /// Writes one token's keys and values `[N, Hkv, 1, Dh]`; returns all of the layer so far.
    pub(crate) fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let (keys, values) = &self.layers[layer];
        keys.f_narrow(2, self.filled, 1)?.f_copy_(k)?;
        values.f_narrow(2, self.filled, 1)?.f_copy_(v)?;
        Ok((keys.f_narrow(2, 0, self.filled + 1)?, values.f_narrow(2, 0, self.filled + 1)?))
    }

    /// The mask over the columns that [`Self::append`] returns.
    pub(crate) fn visible(&self) -> Result<Option<Tensor>> {
        Ok(match &self.mask {
            None => None,
            Some(mask) => Some(mask.f_narrow(3, 0, self.filled + 1)?),
        })
    }

    /// Counts the token that every layer has appended.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.filled += 1;
        self.next_position = self.next_position.f_add_scalar(1)?;
        Ok(())
    }

    /// Keeps these rows only, in this order, with room for `room` further tokens.
    pub(crate) fn keep(&mut self, rows: &[usize], room: usize) -> Result<()> {
        let device = self.next_position.device();
        let rows: Vec<i64> = rows.iter().map(|&r| r as i64).collect();
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(device)?;
        for (k, v) in &mut self.layers {
            for x in [k, v] {
                let used = x.f_narrow(2, 0, self.filled)?.f_index_select(0, &rows)?;
                *x = used.f_constant_pad_nd([0, 0, 0, room as i64])?;
            }
        }
        if let Some(mask) = &mut self.mask {
            let used = mask.f_narrow(3, 0, self.filled)?.f_index_select(0, &rows)?;
            let later = Tensor::f_ones([rows.size()[0], 1, 1, room as i64], (Kind::Bool, device))?;
            *mask = Tensor::f_cat(&[used, later], 3)?;
        }
        self.next_position = self.next_position.f_index_select(0, &rows)?;
        Ok(())
    }
}
