//! Drawing numbers: the same ones in every run, and by any number of threads.

use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The purpose of random numbers. Each purpose has its own sequence, so that one does not change when
/// another needs more numbers.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Words,
    Names,
    Phrases,
    Templates,
    Topic,
    Entity,
    Shape,
    Body,
    Passage,
    Pair,
    Place,
    Question,
}

/// A source of random numbers.
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The numbers of the `number`-th thing of a kind.
    pub fn new(purpose: Purpose, number: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(number);
        generator.set_stream(purpose as u64);
        Self(generator)
    }

    /// One of `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u64::from(self.0.next_u32()) * bound as u64) >> 32) as usize
    }

    /// One of `0..bound`, the first ones more often: the `power`-th power of an even draw.
    pub fn skewed(&mut self, bound: usize, power: i32) -> usize {
        (self.unit().powi(power) * bound as f64) as usize
    }

    /// At least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (1_u64 << 32) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed around 0, with deviation 1.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
    }
}

/// Draws from many outcomes by their weights, in constant time (Walker's alias method).
pub struct Alias {
    /// For each outcome, the chance of itself (of 2³²), and the outcome that has the rest.
    columns: Vec<(u32, u32)>,
}

impl Alias {
    /// Zipf's law as Mandelbrot has it: the weight of the outcome with rank r is (r +
    /// shift)^-exponent.
    pub fn zipf(outcomes: usize, shift: f64, exponent: f64) -> Self {
        Self::new((1..=outcomes).map(|rank| (rank as f64 + shift).powf(-exponent)).collect())
    }

    /// The words of a language: Zipf's law with exponent 1, and with 2 far behind the rank
    /// `common`.
    pub fn words(outcomes: usize, shift: f64, common: f64) -> Self {
        let weight = |rank: f64| 1.0 / (rank + shift) / (1.0 + rank / common);
        Self::new((1..=outcomes).map(|rank| weight(rank as f64)).collect())
    }

    fn new(mut weights: Vec<f64>) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        weights.iter_mut().for_each(|weight| *weight /= mean);
        let mut columns: Vec<(u32, u32)> =
            (0..weights.len() as u32).map(|outcome| (u32::MAX, outcome)).collect();
        let (mut light, mut heavy): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&at| weights[at] < 1.0);
        while let (Some(&poor), Some(&rich)) = (light.last(), heavy.last()) {
            light.pop();
            columns[poor] = ((weights[poor] * (1_u64 << 32) as f64) as u32, rich as u32);
            weights[rich] -= 1.0 - weights[poor];
            if weights[rich] < 1.0 {
                heavy.pop();
                light.push(rich);
            }
        }
        Self { columns }
    }

    pub fn draw(&self, draw: &mut Draw) -> usize {
        let column = draw.below(self.columns.len());
        let (own, other) = self.columns[column];
        if draw.0.next_u32() <= own { column } else { other as usize }
    }
}
