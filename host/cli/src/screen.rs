//! Progress of a training run on the terminal.

use std::cell::Cell;
use std::ops::ControlFlow;

use corver_core::Decoding;
use corver_eval::Evaluation;
use corver_train::Observer;
use indicatif::ProgressBar;
use serde_json::{Map, Value};

use crate::interrupt::Interrupt;
use crate::output;

/// Progress of a run: a bar on a terminal, and a line per step.
pub struct Screen {
    pub bar: ProgressBar,
    interrupt: Interrupt,
    /// True once the interrupt has been reported.
    is_reported: Cell<bool>,
}

impl Screen {
    pub fn new(steps: usize, steps_done: usize, interrupt: Interrupt) -> Self {
        let bar = output::progress(steps as u64, "training");
        bar.set_position(steps_done as u64);
        Self { bar, interrupt, is_reported: Cell::new(false) }
    }

    /// Returns a callback that shows decoding progress, and stops decoding after an interrupt.
    pub fn watch(&self) -> impl FnMut(Decoding) -> ControlFlow<()> + 'static {
        output::decoding(&self.bar, Some(&self.interrupt))
    }
}

impl Observer for Screen {
    fn on_eval_progress(&mut self, done: usize, total: usize) {
        self.bar.set_message(if done < total {
            format!("answering {done}/{total}")
        } else {
            "training".into()
        });
    }

    fn on_eval_end(&mut self, when: &'static str, evaluation: &Evaluation) {
        let percent = 100.0 * evaluation.accuracy;
        let questions = evaluation.grades.total();
        output::note(
            &self.bar,
            &format!("{when} training: {percent:.1} % of {questions} questions right"),
        );
    }

    fn on_warning(&mut self, warning: &str) {
        output::note(&self.bar, &format!("warning: {warning}"));
    }

    fn on_step_end(&mut self, metrics: &Map<String, Value>, total: usize) {
        let number = |name: &str| metrics.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let supported = metrics.get("corver/supported_rate").and_then(Value::as_f64);
        let line = format!(
            "step {:>3}/{total}  reward {:+.3}  supported {:>7}  length {:>5.1}  kl {:.4}  {:.2} s",
            number("step"),
            number("reward"),
            supported.map_or("–".to_owned(), output::percent),
            number("completions/mean_length"),
            // Rounding can make it −0.
            metrics.get("kl").and_then(Value::as_f64).unwrap_or(0.0).max(0.0),
            number("step_time"),
        );
        output::note(&self.bar, &line);
        self.bar.inc(1);
    }

    fn should_stop(&self) -> bool {
        let stop = self.interrupt.is_requested();
        if stop && !self.is_reported.replace(true) {
            output::note(
                &self.bar,
                "interrupted; writing a checkpoint, press Ctrl-C again to exit now",
            );
        }
        stop
    }
}
