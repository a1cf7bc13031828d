//! Attention of the decoded rows to their prompts, whose keys and values all samples share.

use tch::{Device, Kind, Tensor};

use crate::device::upload;
use crate::error::Result;
use crate::libtorch::{self, PartialAttention, SequenceStarts, Slots};

/// Keys and values of concatenated prompts: per layer `[ΣP, Hkv, Dh]`.
pub(crate) type PromptKeys = Vec<(Tensor, Tensor)>;

/// The prompts of the rows that are decoded.
pub(crate) struct Prompts {
    layers: PromptKeys,
    /// Rows that continue each prompt. They are adjacent, in the order of the prompts.
    rows: Vec<i64>,
    /// Query heads that share a key head.
    group: i64,
    layout: PromptLayout,
}

/// Layout in which prompts of different lengths are one kernel call.
enum PromptLayout {
    /// Concatenated; flash attention takes the start of each prompt and of its queries.
    Packed { keys: SequenceStarts, queries: SequenceStarts },
    /// Side by side, `[P · Hkv, longest, Dh]`.
    Padded {
        /// `[P · Hkv, 1, longest]`: −∞ at the padding of a shorter prompt, else 0.
        mask: Tensor,
        /// Set if prompts have different numbers of rows.
        ragged: Option<RaggedRows>,
    },
}

/// Slots for the rows of each prompt. Every prompt has R slots, the most rows of any prompt.
struct RaggedRows {
    /// `[P · R]` i64, row of each slot; an empty slot repeats any row.
    row_of_slot: Tensor,
    /// `[N]` i64, slot of each row.
    slot_of_row: Tensor,
}

impl Prompts {
    /// Splits the tokens of `layers` into prompts: prompt p has `lengths[p]` of them, and
    /// `rows[p]` rows continue it.
    pub(crate) fn new(
        layers: PromptKeys,
        lengths: &[i64],
        rows: Vec<i64>,
        group: i64,
    ) -> Result<Self> {
        let Some((keys, _)) = layers.first() else { unreachable!("a model has layers") };
        let kind = keys.f_kind()?;
        let device = keys.device();
        let heads = keys.size()[1];
        if libtorch::has_flash(kind, device) {
            let mut contiguous = Vec::with_capacity(layers.len());
            for (k, v) in &layers {
                contiguous.push((k.f_contiguous()?, v.f_contiguous()?));
            }
            let layout = PromptLayout::Packed {
                keys: SequenceStarts::new(lengths, device)?,
                queries: query_starts(&rows, group, device)?,
            };
            return Ok(Self { layers: contiguous, rows, group, layout });
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut token_index = Vec::new();
        let mut mask_values = Vec::new();
        let mut first = 0;
        for &length in lengths {
            for column in 0..longest {
                let is_token = column < length;
                token_index.push(if is_token { first + column } else { first });
                mask_values.push(if is_token { 0.0 } else { f32::NEG_INFINITY });
            }
            first += length;
        }
        let token_index = upload(&token_index, device)?;
        let p = lengths.len() as i64;
        let mut padded = Vec::with_capacity(layers.len());
        for (k, v) in &layers {
            let padded_k = pad(k, &token_index, p, longest)?;
            padded.push((padded_k, pad(v, &token_index, p, longest)?));
        }
        let mask = upload(&mask_values, device)?
            .f_to_kind(kind)?
            .f_view([p, 1, 1, longest])?
            .f_expand([p, heads, 1, longest], false)?
            .f_reshape([p * heads, 1, longest])?;
        let ragged = RaggedRows::new(&rows, device)?;
        Ok(Self { layers: padded, rows, group, layout: PromptLayout::Padded { mask, ragged } })
    }

    /// Returns the number of rows that are decoded.
    pub(crate) fn num_rows(&self) -> i64 {
        self.rows.iter().sum()
    }

    /// Retains the rows with these indices, which are ascending.
    pub(crate) fn retain_rows(&mut self, retained: &[usize]) -> Result<()> {
        let mut end = 0;
        for rows in &mut self.rows {
            let start = end;
            end += *rows;
            let own = retained.iter().filter(|&&row| (start..end).contains(&(row as i64)));
            *rows = own.count() as i64;
        }
        let device = self.layers.first().map_or(Device::Cpu, |(keys, _)| keys.device());
        match &mut self.layout {
            PromptLayout::Packed { queries, .. } => {
                *queries = query_starts(&self.rows, self.group, device)?;
            }
            PromptLayout::Padded { ragged, .. } => *ragged = RaggedRows::new(&self.rows, device)?,
        }
        Ok(())
    }

    /// Attends with `q` `[N, Hkv, group, Dh]` → the same shape, and `[N, Hkv, group]` f32.
    pub(crate) fn attend(&self, layer: usize, q: &Tensor) -> Result<PartialAttention> {
        let (keys, values) = &self.layers[layer];
        let (n, heads, group, width) = q.size4()?;
        match &self.layout {
            PromptLayout::Packed { keys: key_starts, queries } => {
                let flat_q = q.f_transpose(1, 2)?.f_reshape([n * group, heads, width])?;
                let (mixed, normaliser) =
                    libtorch::flash_packed(&flat_q, queries, keys, values, key_starts, false)?;
                Ok((
                    mixed.f_view([n, group, heads, width])?.f_transpose(1, 2)?,
                    normaliser.f_view([heads, n, group])?.f_transpose(0, 1)?,
                ))
            }
            PromptLayout::Padded { ragged, .. } => {
                let p = self.rows.len() as i64;
                let slots = match ragged {
                    Some(ragged) => q.f_index_select(0, &ragged.row_of_slot)?,
                    None => q.shallow_clone(),
                };
                let by_prompt = slots.f_view([p, -1, heads, group, width])?.f_transpose(1, 2)?;
                let flat_q = by_prompt.f_reshape([p * heads, -1, width])?;
                let (mixed, normaliser) = self.attend_slots(layer, &flat_q)?;
                let slot_mixed = mixed
                    .f_view([p, heads, -1, group, width])?
                    .f_transpose(1, 2)?
                    .f_reshape([-1, heads, group, width])?;
                let slot_normaliser = normaliser
                    .f_view([p, heads, -1, group])?
                    .f_transpose(1, 2)?
                    .f_reshape([-1, heads, group])?;
                match ragged {
                    Some(RaggedRows { slot_of_row, .. }) => Ok((
                        slot_mixed.f_index_select(0, slot_of_row)?,
                        slot_normaliser.f_index_select(0, slot_of_row)?,
                    )),
                    None => Ok((slot_mixed, slot_normaliser)),
                }
            }
        }
    }

    /// Returns the slots of the rows; `None` if the prompts have no slots.
    pub(crate) fn slots(&self) -> Option<Slots<'_>> {
        let PromptLayout::Padded { ragged, .. } = &self.layout else { return None };
        Some(Slots {
            prompts: self.rows.len() as i64,
            per_prompt: self.rows.iter().copied().max().unwrap_or(0),
            of_row: ragged.as_ref().map(|ragged| &ragged.slot_of_row),
        })
    }

    /// Attends with the queries `q` `[P · Hkv, R · group, Dh]` of all slots → the same shape, and
    /// `[P · Hkv, R · group]` f32.
    pub(crate) fn attend_slots(&self, layer: usize, q: &Tensor) -> Result<PartialAttention> {
        let PromptLayout::Padded { mask, .. } = &self.layout else {
            unreachable!("the prompts have slots")
        };
        let (keys, values) = &self.layers[layer];
        attend(q, keys, values, Some(mask))
    }
}

/// Pads the `p` prompts in `x` `[ΣP, Hkv, Dh]` → `[P · Hkv, longest, Dh]`.
fn pad(x: &Tensor, token_index: &Tensor, p: i64, longest: i64) -> Result<Tensor> {
    let heads = x.size()[1];
    let padded = x.f_index_select(0, token_index)?.f_view([p, longest, heads, -1])?;
    Ok(padded.f_transpose(1, 2)?.f_reshape([p * heads, longest, -1])?)
}

impl RaggedRows {
    /// Returns `None` if all prompts have the same number of rows.
    fn new(rows: &[i64], device: Device) -> Result<Option<Self>> {
        let most = rows.iter().copied().max().unwrap_or(0);
        if rows.iter().all(|&n| n == most) {
            return Ok(None);
        }
        let mut row_of_slot = Vec::new();
        let mut slot_of_row = Vec::new();
        for (prompt, &n) in rows.iter().enumerate() {
            let first = slot_of_row.len() as i64;
            row_of_slot.extend((0..most).map(|slot| if slot < n { first + slot } else { 0 }));
            slot_of_row.extend((0..n).map(|row| prompt as i64 * most + row));
        }
        Ok(Some(Self {
            row_of_slot: upload(&row_of_slot, device)?,
            slot_of_row: upload(&slot_of_row, device)?,
        }))
    }
}

fn query_starts(rows: &[i64], group: i64, device: Device) -> Result<SequenceStarts> {
    let queries: Vec<i64> = rows.iter().map(|rows| rows * group).collect();
    SequenceStarts::new(&queries, device)
}

/// Queries per head from which the CPU's fused kernel is faster than plain operations.
const FUSED_QUERIES: i64 = 8;

/// Attends with `q` `[B, T, Dh]` over `keys` and `values` `[B, S, Dh]` → `[B, T, Dh]`, and `[B, T]`
/// f32. `mask` `[B, 1, S]` is added to the scores.
pub(crate) fn attend(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    mask: Option<&Tensor>,
) -> Result<PartialAttention> {
    let (_, queries, width) = q.size3()?;
    let kind = q.f_kind()?;
    let device = q.device();
    if mask.is_none() && libtorch::has_flash(kind, device) {
        let (mixed, normaliser) = libtorch::flash(
            &q.f_unsqueeze(2)?,
            &keys.f_unsqueeze(2)?,
            &values.f_unsqueeze(2)?,
            false,
        )?;
        return Ok((mixed.f_squeeze_dim(2)?, normaliser.f_squeeze_dim(1)?));
    }
    if device == Device::Cpu && queries >= FUSED_QUERIES {
        let (mixed, normaliser) = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            // The kernel takes the numbers of a head to be contiguous, as they are in the tables.
            &q.f_contiguous()?.f_unsqueeze(0)?,
            &keys.f_unsqueeze(0)?,
            &values.f_unsqueeze(0)?,
            0.0,
            false,
            mask.map(|mask| mask.f_unsqueeze(0)).transpose()?,
            None,
        )?;
        return Ok((mixed.f_squeeze_dim(0)?, normaliser.f_squeeze_dim(0)?));
    }
    let mut scores = q.f_div_scalar((width as f64).sqrt())?.f_bmm(&keys.f_transpose(1, 2)?)?;
    if let Some(mask) = mask {
        scores = scores.f_add(mask)?;
    }
    scores = scores.f_to_kind(Kind::Float)?;
    let log_probs = scores.f_log_softmax(-1, Kind::Float)?;
    // score − log-probability is the normaliser at every key; the first key is never masked.
    let normaliser = scores.f_select(-1, 0)?.f_sub(&log_probs.f_select(-1, 0)?)?;
    Ok((log_probs.f_exp()?.f_to_kind(kind)?.f_bmm(values)?, normaliser))
}
