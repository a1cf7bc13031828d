//! An optimiser's moment of a parameter, stored in f32, or in 8 bits with a scale for every 256
//! numbers (Dettmers et al. 2022, “8-bit Optimizers via Block-wise Quantization”).

use corver_core::MomentPrecision;
use tch::{Kind, Tensor};

use crate::error::{LearnError, Result};

/// Numbers that share a scale, which is the largest magnitude among them.
const BLOCK: i64 = 256;

/// Parameters with fewer elements have f32 moments, as in the published optimiser.
const MIN_EIGHT_BIT_ELEMENTS: usize = 4096;

/// A moment of one parameter.
#[derive(Debug)]
pub(crate) enum Moment {
    Full(Tensor),
    EightBit(EightBit),
}

/// A tensor of n numbers, each a level times the scale of its block.
#[derive(Debug)]
pub(crate) struct EightBit {
    /// `[n]` u8, indices in `levels`.
    codes: Tensor,
    /// `[⌈n / 256⌉]` f32, scale of each block.
    scales: Tensor,
    /// `[256]` f32, the levels in ascending order.
    levels: Tensor,
    /// Shape of the parameter.
    shape: Vec<i64>,
}

impl Moment {
    /// Creates a zero moment for a parameter; `signed` if it can be negative.
    pub(crate) fn new(
        parameter: &Tensor,
        precision: MomentPrecision,
        signed: bool,
    ) -> Result<Self> {
        let zeros = parameter.f_zeros_like()?.f_detach()?;
        if precision == MomentPrecision::F32 || parameter.numel() < MIN_EIGHT_BIT_ELEMENTS {
            return Ok(Self::Full(zeros));
        }
        let levels = Tensor::f_from_slice(&levels(signed))?.f_to_device(parameter.device())?;
        let (codes, scales) = quantise(&zeros, &levels)?;
        Ok(Self::EightBit(EightBit { codes, scales, levels, shape: parameter.size() }))
    }

    /// Returns the moment in the parameter's shape. In-place operations on it may change the moment;
    /// call [`Moment::write`] with the result.
    pub(crate) fn read(&self) -> Result<Tensor> {
        match self {
            Self::Full(value) => Ok(value.shallow_clone()),
            Self::EightBit(moment) => moment.read(),
        }
    }

    pub(crate) fn write(&mut self, value: &Tensor) -> Result<()> {
        match self {
            Self::Full(full) => *full = value.shallow_clone(),
            Self::EightBit(EightBit { codes, scales, levels, .. }) => {
                (*codes, *scales) = quantise(value, levels)?;
            }
        }
        Ok(())
    }

    /// Returns the tensors to save, with the ends of their names.
    pub(crate) fn tensors(&self) -> Vec<(&'static str, &Tensor)> {
        match self {
            Self::Full(value) => vec![("", value)],
            Self::EightBit(EightBit { codes, scales, .. }) => {
                vec![(".codes", codes), (".scales", scales)]
            }
        }
    }

    /// Returns a moment like this one with saved tensors; `take` returns each by the name that
    /// [`Moment::tensors`] has for it.
    pub(crate) fn restored(&self, mut take: impl FnMut(&str) -> Result<Tensor>) -> Result<Self> {
        Ok(match self {
            Self::Full(full) => Self::Full(check_like(take("")?, full)?),
            Self::EightBit(EightBit { codes, scales, levels, shape }) => Self::EightBit(EightBit {
                codes: check_like(take(".codes")?, codes)?,
                scales: check_like(take(".scales")?, scales)?,
                levels: levels.shallow_clone(),
                shape: shape.clone(),
            }),
        })
    }
}

/// Checks that a saved tensor has the shape and dtype of `like`.
fn check_like(saved: Tensor, like: &Tensor) -> Result<Tensor> {
    if saved.size() == like.size() && saved.f_kind()? == like.f_kind()? {
        return Ok(saved);
    }
    Err(LearnError::Input {
        what: "optimiser state",
        expected: format!("{:?} of shape {:?}", like.kind(), like.size()),
        got: format!("{:?} of shape {:?}", saved.kind(), saved.size()),
    })
}

impl EightBit {
    fn read(&self) -> Result<Tensor> {
        let n = self.codes.numel() as i64;
        let levels = self.levels.f_index_select(0, &self.codes.f_to_kind(Kind::Int64)?)?;
        let scales = self.scales.f_repeat_interleave_self_int(BLOCK, 0, None)?.f_narrow(0, 0, n)?;
        Ok(levels.f_mul(&scales)?.f_view(self.shape.as_slice())?)
    }
}

/// Rounds each number to the nearest level. Returns codes and scales as in [`EightBit`].
fn quantise(value: &Tensor, levels: &Tensor) -> Result<(Tensor, Tensor)> {
    let flat = value.f_reshape([-1])?;
    let n = flat.numel() as i64;
    let blocks = flat.f_constant_pad_nd([0, (BLOCK - n % BLOCK) % BLOCK])?.f_view([-1, BLOCK])?;
    let scales = blocks.f_abs()?.f_amax([1i64].as_slice(), false)?;
    // The clamp avoids a division of 0 by 0 in a block of zeros.
    let divisors = scales.f_clamp_min(f64::from(f32::MIN_POSITIVE))?.f_unsqueeze(1)?;
    let scaled = blocks.f_div(&divisors)?;
    let lower = levels.f_narrow(0, 0, 255)?;
    let upper = levels.f_narrow(0, 1, 255)?;
    let midpoints = lower.f_add(&upper)?.f_div_scalar(2.0)?;
    let codes = scaled
        .f_bucketize(&midpoints, false, false)?
        .f_to_kind(Kind::Uint8)?
        .f_view([-1])?
        .f_narrow(0, 0, n)?
        .f_contiguous()?;
    Ok((codes, scales))
}

/// Returns the 256 levels of a dynamic-exponent number within ±1, ascending: 0, 1 and seven decades
/// from 1e-6. Each decade has twice as many evenly spaced fractions as the decade below. Unsigned
/// levels are twice as dense.
fn levels(signed: bool) -> Vec<f32> {
    let mut levels = vec![0.0, 1.0];
    for decade in 0..7 {
        let fractions = if signed { 1 << decade } else { 2 << decade };
        for n in 0..fractions {
            // The middle of each of the equal parts of 0.1 to 1.
            let fraction = 0.1 + 0.9 * (f64::from(n) + 0.5) / f64::from(fractions);
            let level = (fraction * 10f64.powi(decade - 6)) as f32;
            levels.push(level);
            if signed {
                levels.push(-level);
            }
        }
    }
    levels.sort_by(f32::total_cmp);
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::AdamW;
    use corver_core::AdamWSettings;
    use tch::Device;

    #[test]
    fn quantisation_levels_match_bitsandbytes() {
        let signed = levels(true);
        let unsigned = levels(false);
        assert_eq!((signed.len(), unsigned.len()), (256, 256));
        // The lowest, those around 0 and the highest of bitsandbytes' `create_dynamic_map`.
        let ends = |levels: &[f32], around: usize| {
            [
                levels[0],
                levels[around - 1],
                levels[around],
                levels[around + 1],
                levels[254],
                levels[255],
            ]
        };
        let close = |got: [f32; 6], expected: [f32; 6]| {
            got.iter()
                .zip(expected)
                .all(|(got, expected)| (got - expected).abs() <= 1e-6 * expected.abs())
        };
        assert!(
            close(ends(&signed, 127), [-0.992_968_74, -5.5e-7, 0.0, 5.5e-7, 0.992_968_74, 1.0]),
            "{signed:?}"
        );
        assert!(
            close(ends(&unsigned, 1), [0.0, 0.0, 3.25e-7, 7.75e-7, 0.996_484_4, 1.0]),
            "{unsigned:?}"
        );
    }

    #[test]
    fn eight_bit_moments_round_trip_within_tolerance() {
        let value =
            (Tensor::arange(5000, (Kind::Float, Device::Cpu)) * 0.37).sin().view([50, 100]) * 1e-4;
        let mut moment = Moment::new(&value, MomentPrecision::Eight, true).unwrap();
        assert_eq!(moment.read().unwrap().abs().max().double_value(&[]), 0.0);
        moment.write(&value).unwrap();
        let back = moment.read().unwrap();
        assert_eq!(back.size(), [50, 100]);
        // The widest gap, between neighbours in the highest decade, is 0.9 / 64 of the scale.
        assert!((&back - &value).abs().max().double_value(&[]) < 1e-4 * 0.9 / 64.0 / 1.9);
        let again = moment.restored(|name| {
            let tensors = moment.tensors();
            let (_, tensor) = tensors.iter().find(|(known, _)| *known == name).unwrap();
            Ok(tensor.shallow_clone())
        });
        assert_eq!(again.unwrap().read().unwrap(), back);
        assert!(matches!(
            Moment::new(&value.narrow(0, 0, 40), MomentPrecision::Eight, true),
            Ok(Moment::Full(_))
        ));
    }

    /// Compares with the published algorithm in f64, number by number: moments from their codes, the
    /// step, new scales, the nearest level.
    #[test]
    fn eight_bit_adamw_matches_reference_steps() {
        const N: usize = 4200; // 16 blocks and a part of one
        let settings = AdamWSettings {
            weight_decay: 0.01,
            moments: MomentPrecision::Eight,
            ..AdamWSettings::default()
        };
        let rate = 1e-2;
        let parameter = Tensor::ones([N as i64], (Kind::Float, Device::Cpu));
        let mut optimizer = AdamW::new(vec![parameter.shallow_clone()], settings).unwrap();
        let levels = [levels(true), levels(false)];
        let mut expected = vec![1.0f64; N];
        let mut moments = [vec![0.0f64; N], vec![0.0f64; N]];
        for step in 1..=4 {
            let gradient: Vec<f64> = (0..N)
                .map(|n| ((n * step) as f64 * 0.731).sin() * 10f64.powi(-((n % 5) as i32)))
                .collect();
            let tensor = Tensor::from_slice(&gradient).to_kind(Kind::Float);
            optimizer.step(&[tensor], rate).unwrap();
            let (scale1, scale2) =
                (1.0 - 0.9f64.powi(step as i32), 1.0 - 0.999f64.powi(step as i32));
            for n in 0..N {
                moments[0][n] = 0.9 * moments[0][n] + 0.1 * gradient[n];
                moments[1][n] = 0.999 * moments[1][n] + 0.001 * gradient[n] * gradient[n];
                let move_by = moments[0][n] / scale1 / ((moments[1][n] / scale2).sqrt() + 1e-8);
                expected[n] = expected[n] * (1.0 - rate * 0.01) - rate * move_by;
            }
            for (moment, levels) in moments.iter_mut().zip(&levels) {
                for block in moment.chunks_mut(256) {
                    let scale = block.iter().fold(0f64, |most, x| most.max(x.abs()));
                    let far = |level: f32, x: f64| (f64::from(level) - x / scale).abs();
                    for x in block {
                        let nearest = levels
                            .iter()
                            .min_by(|a, b| far(**a, *x).total_cmp(&far(**b, *x)))
                            .unwrap();
                        *x = f64::from(*nearest) * scale;
                    }
                }
            }
        }
        let got = Vec::<f32>::try_from(parameter).unwrap();
        let far = got
            .iter()
            .zip(&expected)
            .filter(|(got, expected)| (f64::from(**got) - **expected).abs() > 1e-5)
            .count();
        // A number half-way between two levels may round to the other one in f32.
        assert!(far <= N / 500, "{far} of {N} differ");
    }
}
