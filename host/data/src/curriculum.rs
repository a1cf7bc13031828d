//! A curriculum: consecutive phases of a run, each with its own questions. (The paper's baselines
//! train on easy, medium and hard questions in three phases, each for a third of the steps; App.
//! baselines.)

use std::ops::Range;

use corver_core::Question;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The random stream that shuffles the first file's questions; file n uses this plus n.
const FILE_STREAM: u64 = 2;

/// The training questions of a run, phase by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curriculum {
    /// Questions of the first phase, then those of the second, and so on.
    pub questions: Vec<Question>,
    /// Number of questions of each phase.
    phases: Vec<usize>,
}

/// A phase's steps, and the range of its questions in [`Curriculum::questions`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Steps of the run, counted from 0.
    pub steps: Range<usize>,
    /// Indices of the questions.
    pub questions: Range<usize>,
}

/// The part of a phase's questions that comes from one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileShare {
    /// Index of the file.
    pub file: usize,
    /// Number of questions.
    pub take: usize,
}

/// A file that has fewer questions than the phases take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the phases take {wanted} questions of {file}, which has {available}")]
pub struct TooFewQuestions {
    /// Name of the file.
    pub file: String,
    /// Number of questions that all phases take together.
    pub wanted: usize,
    /// Number of questions in the file.
    pub available: usize,
}

impl Curriculum {
    /// Returns a curriculum of one phase, with all questions.
    #[must_use]
    pub fn single_phase(questions: Vec<Question>) -> Self {
        Self { phases: vec![questions.len()], questions }
    }

    /// Draws the questions of each phase from named files, without replacement. The same `seed`
    /// draws the same questions.
    ///
    /// # Errors
    /// Fails if a file has too few questions.
    pub fn draw(
        files: Vec<(String, Vec<Question>)>,
        phases: &[Vec<FileShare>],
        seed: u64,
    ) -> Result<Self, TooFewQuestions> {
        let mut shuffled = Vec::with_capacity(files.len());
        for (number, (file, mut questions)) in files.into_iter().enumerate() {
            let mut wanted = 0;
            for share in phases.iter().flatten() {
                if share.file == number {
                    wanted += share.take;
                }
            }
            if wanted > questions.len() {
                return Err(TooFewQuestions { file, wanted, available: questions.len() });
            }
            // A stream per file: the draw from a file does not depend on the others' sizes.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(FILE_STREAM + number as u64);
            questions.shuffle(&mut rng);
            shuffled.push(questions.into_iter());
        }
        let mut curriculum = Self::default();
        for phase in phases {
            let before = curriculum.questions.len();
            for &FileShare { file, take } in phase {
                curriculum.questions.extend(shuffled[file].by_ref().take(take));
            }
            curriculum.phases.push(curriculum.questions.len() - before);
        }
        Ok(curriculum)
    }

    /// Returns the number of phases.
    #[must_use]
    pub fn num_phases(&self) -> usize {
        self.phases.len()
    }

    /// True if some step has no questions.
    #[must_use]
    pub fn has_empty_phase(&self) -> bool {
        self.phases.is_empty() || self.phases.contains(&0)
    }

    /// Returns the phase of step `step` of `steps`. The phases' numbers of steps differ by at most
    /// one.
    ///
    /// # Panics
    /// Panics if `step` is not below `steps`.
    #[must_use]
    pub fn phase(&self, step: usize, steps: usize) -> Phase {
        assert!(step < steps, "a run of {steps} steps has no step {step}");
        let number = self.phases.len();
        let first_step = |phase: usize| (phase * steps).div_ceil(number);
        let phase = (0..number).rfind(|&phase| first_step(phase) <= step).unwrap_or(0);
        let before: usize = self.phases[..phase].iter().sum();
        Phase {
            steps: first_step(phase)..first_step(phase + 1),
            questions: before..before + self.phases[phase],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn file(name: &str, number: usize) -> (String, Vec<Question>) {
        let question = |n| Question { question: format!("{name} {n}"), ..Question::default() };
        (name.to_owned(), (0..number).map(question).collect())
    }

    fn share(file: usize, take: usize) -> FileShare {
        FileShare { file, take }
    }

    #[test]
    fn no_question_is_drawn_twice() {
        let phases = [vec![share(0, 6), share(1, 2)], vec![share(0, 4), share(1, 3)]];
        let draw = |seed| {
            Curriculum::draw(vec![file("easy", 10), file("hard", 9)], &phases, seed).unwrap()
        };
        let curriculum = draw(1);
        let texts: Vec<&str> =
            curriculum.questions.iter().map(|question| question.question.as_str()).collect();
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 15);
        let easy = |range: Range<usize>| {
            texts[range].iter().filter(|text| text.starts_with("easy")).count()
        };
        assert_eq!((curriculum.phases.clone(), easy(0..8), easy(8..15)), (vec![8, 7], 6, 4));
        assert_eq!(draw(1), curriculum);
        assert_ne!(draw(2), curriculum);
    }

    #[test]
    fn curriculum_file_must_cover_all_phases() {
        let phases = [vec![share(0, 6)], vec![share(0, 5)]];
        let error = Curriculum::draw(vec![file("easy", 10)], &phases, 1).unwrap_err().to_string();
        assert_eq!(error, "the phases take 11 questions of easy, which has 10");
    }

    #[test]
    fn curriculum_phases_share_training_steps() {
        let phases = [vec![share(0, 3)], vec![share(0, 2)], vec![share(0, 1)]];
        let curriculum = Curriculum::draw(vec![file("easy", 6)], &phases, 1).unwrap();
        let starts = |steps| {
            (0..steps).map(|step| curriculum.phase(step, steps).questions.start).collect::<Vec<_>>()
        };
        assert_eq!(starts(6), [0, 0, 3, 3, 5, 5]);
        assert_eq!(starts(7), [0, 0, 0, 3, 3, 5, 5]);
        assert_eq!(starts(2), [0, 3], "a run that is too short for them all");
        assert_eq!(curriculum.phase(3, 6), Phase { steps: 2..4, questions: 3..5 });
        let single = Curriculum::single_phase(file("easy", 4).1);
        assert_eq!(single.phase(5, 9), Phase { steps: 0..9, questions: 0..4 });
    }
}
