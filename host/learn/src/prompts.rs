//! Attention of the rows that are being decoded to their prompts, whose keys and values are held
//! once for all samples.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::libtorch::{self, Starts};

/// Keys and values of prompts, one behind the other: per layer `[ΣP, Hkv, Dh]`.
pub(crate) type PromptKeys = Vec<(Tensor, Tensor)>;

/// Softmax attention over some of the keys: the mixed values, and the logarithms of the
/// normalisers.
pub(crate) type Part = (Tensor, Tensor);

/// The prompts of the rows that are being decoded.
pub(crate) struct Prompts {
    layers: PromptKeys,
    /// Rows that continue each prompt; they are next to each other, in the order of the prompts.
    rows: Vec<i64>,
    /// Query heads that share a key head.
    group: i64,
    form: Form,
}

/// How prompts of different lengths become one call.
enum Form {
    /// One behind the other: flash attention is told where the keys begin, and the queries.
    Packed { keys: Starts, queries: Starts },
    /// Side by side, `[P · Hkv, longest, Dh]`.
    Padded {
        /// `[P · Hkv, 1, longest]`: −∞ where a shorter one has no token, else 0.
        mask: Tensor,
        /// Where prompts have different numbers of rows.
        ragged: Option<Ragged>,
    },
}

/// As many places for rows at every prompt as the one with the most of them has.
struct Ragged {
    /// `[P · R]` i64, the row at each place; any row at one that stays empty.
    row_at: Tensor,
    /// `[N]` i64, the place of each row.
    place_of: Tensor,
}

impl Prompts {
    /// Prompt p has the next `lengths[p]` of the tokens in `layers`, and is continued by `rows[p]`
    /// rows.
    pub(crate) fn new(
        layers: PromptKeys,
        lengths: &[i64],
        rows: Vec<i64>,
        group: i64,
    ) -> Result<Self> {
        let Some((keys, _)) = layers.first() else { unreachable!("a model has layers") };
        let (kind, device, heads) = (keys.f_kind()?, keys.device(), keys.size()[1]);
        if libtorch::has_flash(kind, device) {
            let whole = |(k, v): &(Tensor, Tensor)| Ok((k.f_contiguous()?, v.f_contiguous()?));
            let layers = layers.iter().map(whole).collect::<Result<_>>()?;
            let form = Form::Packed {
                keys: Starts::new(lengths, device)?,
                queries: query_starts(&rows, group, device)?,
            };
            return Ok(Self { layers, rows, group, form });
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let (mut token_at, mut mask, mut first) = (Vec::new(), Vec::new(), 0);
        for &length in lengths {
            let is_there = |column: &i64| *column < length;
            token_at.extend(
                (0..longest).map(|column| if is_there(&column) { first + column } else { first }),
            );
            mask.extend(
                (0..longest).map(|column| if is_there(&column) { 0.0 } else { f32::NEG_INFINITY }),
            );
            first += length;
        }
        let token_at = Tensor::f_from_slice(&token_at)?.f_to_device(device)?;
        let p = lengths.len() as i64;
        let side_by_side = |x: &Tensor| -> Result<Tensor> {
            let padded = x.f_index_select(0, &token_at)?.f_view([p, longest, heads, -1])?;
            Ok(padded.f_transpose(1, 2)?.f_reshape([p * heads, longest, -1])?)
        };
        let both = |(k, v): &(Tensor, Tensor)| Ok((side_by_side(k)?, side_by_side(v)?));
        let layers = layers.iter().map(both).collect::<Result<_>>()?;
        let mask = Tensor::f_from_slice(&mask)?
            .f_to_device(device)?
            .f_to_kind(kind)?
            .f_view([p, 1, 1, longest])?;
        let mask =
            mask.f_expand([p, heads, 1, longest], false)?.f_reshape([p * heads, 1, longest])?;
        let ragged = Ragged::new(&rows, device)?;
        Ok(Self { layers, rows, group, form: Form::Padded { mask, ragged } })
    }

    /// Rows that are being decoded.
    pub(crate) fn num_rows(&self) -> i64 {
        self.rows.iter().sum()
    }

    /// Keeps these rows only, which are in order.
    pub(crate) fn keep(&mut self, kept: &[usize]) -> Result<()> {
        let mut end = 0;
        for rows in &mut self.rows {
            let start = end;
            end += *rows;
            *rows = kept.iter().filter(|&&row| (start..end).contains(&(row as i64))).count() as i64;
        }
        let device = self.layers.first().map_or(Device::Cpu, |(keys, _)| keys.device());
        match &mut self.form {
            Form::Packed { queries, .. } => {
                *queries = query_starts(&self.rows, self.group, device)?
            }
            Form::Padded { ragged, .. } => *ragged = Ragged::new(&self.rows, device)?,
        }
        Ok(())
    }

    /// `q` `[N, Hkv, group, Dh]` → the same, and `[N, Hkv, group]` f32.
    pub(crate) fn attend(&self, layer: usize, q: &Tensor) -> Result<Part> {
        let (keys, values) = &self.layers[layer];
        let (n, heads, group, width) = q.size4()?;
        match &self.form {
            Form::Packed { keys: of_keys, queries } => {
                let q = q.f_transpose(1, 2)?.f_reshape([n * group, heads, width])?;
                let (mixed, normaliser) =
                    libtorch::flash_packed(&q, queries, keys, values, of_keys)?;
                let mixed = mixed.f_view([n, group, heads, width])?.f_transpose(1, 2)?;
                Ok((mixed, normaliser.f_view([heads, n, group])?.f_transpose(0, 1)?))
            }
            Form::Padded { mask, ragged } => {
                let p = self.rows.len() as i64;
                let at_places = |x: &Tensor| {
                    ragged
                        .as_ref()
                        .map_or(Ok(x.shallow_clone()), |r| x.f_index_select(0, &r.row_at))
                };
                let of_rows = |x: &Tensor| {
                    ragged
                        .as_ref()
                        .map_or(Ok(x.shallow_clone()), |r| x.f_index_select(0, &r.place_of))
                };
                let q = at_places(q)?.f_view([p, -1, heads, group, width])?.f_transpose(1, 2)?;
                let (mixed, normaliser) =
                    attend(&q.f_reshape([p * heads, -1, width])?, keys, values, Some(mask))?;
                let mixed = mixed.f_view([p, heads, -1, group, width])?.f_transpose(1, 2)?;
                let normaliser = normaliser.f_view([p, heads, -1, group])?.f_transpose(1, 2)?;
                Ok((
                    of_rows(&mixed.f_reshape([-1, heads, group, width])?)?,
                    of_rows(&normaliser.f_reshape([-1, heads, group])?)?,
                ))
            }
        }
    }
}

impl Ragged {
    /// `None` where every prompt has as many of the `rows`.
    fn new(rows: &[i64], device: Device) -> Result<Option<Self>> {
        let most = rows.iter().copied().max().unwrap_or(0);
        if rows.iter().all(|&n| n == most) {
            return Ok(None);
        }
        let (mut row_at, mut place_of) = (Vec::new(), Vec::new());
        for (prompt, &n) in rows.iter().enumerate() {
            let first = place_of.len() as i64;
            row_at.extend((0..most).map(|place| if place < n { first + place } else { 0 }));
            place_of.extend((0..n).map(|row| prompt as i64 * most + row));
        }
        let [row_at, place_of] =
            [row_at, place_of].map(|index| Tensor::f_from_slice(&index)?.f_to_device(device));
        Ok(Some(Self { row_at: row_at?, place_of: place_of? }))
    }
}

fn query_starts(rows: &[i64], group: i64, device: Device) -> Result<Starts> {
    let queries: Vec<i64> = rows.iter().map(|rows| rows * group).collect();
    Starts::new(&queries, device)
}

/// Queries per head from which the fused kernel of the CPU is faster than plain operations.
const FUSED_QUERIES: i64 = 8;

/// `q` `[B, T, Dh]` over `keys` and `values` `[B, S, Dh]` → `[B, T, Dh]`, and `[B, T]` f32. `mask`
/// `[B, 1, S]` is added to the scores.
pub(crate) fn attend(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Part> {
    let (kind, device) = (q.f_kind()?, q.device());
    let (_, queries, width) = q.size3()?;
    if mask.is_none() && libtorch::has_flash(kind, device) {
        let one_head = |x: &Tensor| x.f_unsqueeze(2);
        let (mixed, normaliser) =
            libtorch::flash(&one_head(q)?, &one_head(keys)?, &one_head(values)?, false)?;
        return Ok((mixed.f_squeeze_dim(2)?, normaliser.f_squeeze_dim(1)?));
    }
    if device == Device::Cpu && queries >= FUSED_QUERIES {
        let one_row = |x: &Tensor| x.f_unsqueeze(0);
        let (mixed, normaliser) = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            // It takes the numbers of a head to be next to each other, as they are in the tables.
            &one_row(&q.f_contiguous()?)?,
            &one_row(keys)?,
            &one_row(values)?,
            0.0,
            false,
            mask.map(one_row).transpose()?,
            None,
        )?;
        return Ok((mixed.f_squeeze_dim(0)?, normaliser.f_squeeze_dim(0)?));
    }
    let scores = q.f_div_scalar((width as f64).sqrt())?.f_bmm(&keys.f_transpose(1, 2)?)?;
    let scores = mask
        .map_or(Ok(scores.shallow_clone()), |mask| scores.f_add(mask))?
        .f_to_kind(Kind::Float)?;
    let logs = scores.f_log_softmax(-1, Kind::Float)?;
    // The first key is there for every query.
    let normaliser = scores.f_select(-1, 0)?.f_sub(&logs.f_select(-1, 0)?)?;
    Ok((logs.f_exp()?.f_to_kind(kind)?.f_bmm(values)?, normaliser))
}
