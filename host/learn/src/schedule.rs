//! Cosine learning-rate schedule with linear warm-up, as `transformers`' `cosine`.

/// The learning rate as a function of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineSchedule {
    base: f64,
    total_steps: usize,
    warmup_steps: usize,
}

impl CosineSchedule {
    /// Creates a schedule with a linear warm-up of `warmup_ratio` of `total_steps`, rounded up, and a
    /// decay along half a cosine to 0. Warm-up starts at 0: its first step changes no weight.
    #[must_use]
    pub fn new(base: f64, total_steps: usize, warmup_ratio: f64) -> Self {
        Self {
            base,
            total_steps,
            warmup_steps: (total_steps as f64 * warmup_ratio).ceil() as usize,
        }
    }

    /// Returns the number of warm-up steps.
    #[must_use]
    pub fn warmup_steps(&self) -> usize {
        self.warmup_steps
    }

    /// Returns the rate of the step after `done` finished steps.
    #[must_use]
    pub fn rate(&self, done: usize) -> f64 {
        if done < self.warmup_steps {
            return self.base * done as f64 / self.warmup_steps as f64;
        }
        let progress = (done - self.warmup_steps) as f64
            / (self.total_steps.saturating_sub(self.warmup_steps)).max(1) as f64;
        self.base * (0.5 * (1.0 + (std::f64::consts::PI * progress).cos())).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_schedule_warms_up_and_decays_to_zero() {
        let schedule = CosineSchedule::new(2.0, 100, 0.03);
        assert_eq!(schedule.warmup_steps(), 3);
        assert_eq!(schedule.rate(0), 0.0);
        assert!((schedule.rate(1) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(schedule.rate(3), 2.0);
        assert!(schedule.rate(100).abs() < 1e-12);
    }

    #[test]
    fn first_step_without_warmup_has_full_rate() {
        assert_eq!(CosineSchedule::new(1.0, 10, 0.0).rate(0), 1.0);
    }
}
