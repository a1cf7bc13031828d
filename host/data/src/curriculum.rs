//! A curriculum: phases that a run goes through one after the other, each with questions of its
//! own. (The paper's baselines train on easy, medium and hard questions in three phases, each for a
//! third of the steps; App. baselines.)

use std::ops::Range;

use corver_core::Question;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The generator's stream that shuffles the questions of file n is this plus n.
const FILE_STREAM: u64 = 2;

/// Training questions, phase by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curriculum {
    /// Those of the first phase, then those of the second, and so on.
    pub questions: Vec<Question>,
    /// How many questions each phase has.
    phases: Vec<usize>,
}

/// Some of the questions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which file.
    pub file: usize,
    /// How many of its questions.
    pub take: usize,
}

/// A file has fewer questions than the phases take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the phases take {wanted} questions of {file}, which has {there}")]
pub struct TooFew {
    /// Its name.
    pub file: String,
    /// Questions that the phases take, all together.
    pub wanted: usize,
    /// Questions that it has.
    pub there: usize,
}

impl Curriculum {
    /// All questions, for the whole run.
    #[must_use]
    pub fn of_one(questions: Vec<Question>) -> Self {
        Self { phases: vec![questions.len()], questions }
    }

    /// Draws the questions of each phase from named files; no question is drawn twice. `seed`
    /// decides which.
    ///
    /// # Errors
    /// Where a file has too few.
    pub fn draw(
        files: Vec<(String, Vec<Question>)>,
        phases: &[Vec<Share>],
        seed: u64,
    ) -> Result<Self, TooFew> {
        let mut left = Vec::with_capacity(files.len());
        for (number, (file, mut questions)) in files.into_iter().enumerate() {
            let of_file = |share: &&Share| share.file == number;
            let wanted = phases.iter().flatten().filter(of_file).map(|share| share.take).sum();
            if wanted > questions.len() {
                return Err(TooFew { file, wanted, there: questions.len() });
            }
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(FILE_STREAM + number as u64);
            questions.shuffle(&mut rng);
            left.push(questions.into_iter());
        }
        let mut curriculum = Self::default();
        for phase in phases {
            let before = curriculum.questions.len();
            for &Share { file, take } in phase {
                curriculum.questions.extend(left[file].by_ref().take(take));
            }
            curriculum.phases.push(curriculum.questions.len() - before);
        }
        Ok(curriculum)
    }

    /// Whether some step would have no questions.
    #[must_use]
    pub fn has_empty_phase(&self) -> bool {
        self.phases.is_empty() || self.phases.contains(&0)
    }

    /// The phase of step `step` of `steps`, both its steps and its questions, by place. Phases have
    /// equally many steps, as far as that is possible.
    ///
    /// # Panics
    /// Where `step` is not below `steps`.
    #[must_use]
    pub fn phase(&self, step: usize, steps: usize) -> (Range<usize>, Range<usize>) {
        assert!(step < steps, "a run of {steps} steps has no step {step}");
        let number = self.phases.len();
        let begin = |phase: usize| (phase * steps).div_ceil(number);
        let phase = (0..number).rfind(|&phase| begin(phase) <= step).unwrap_or(0);
        let before = self.phases[..phase].iter().sum();
        (begin(phase)..begin(phase + 1), before..before + self.phases[phase])
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

    fn share(file: usize, take: usize) -> Share {
        Share { file, take }
    }

    #[test]
    fn no_question_is_drawn_twice() {
        let phases = [vec![share(0, 6), share(1, 2)], vec![share(0, 4), share(1, 3)]];
        let draw = |seed| {
            Curriculum::draw(vec![file("easy", 10), file("hard", 9)], &phases, seed).unwrap()
        };
        let curriculum = draw(1);
        let texts: Vec<&str> =
            curriculum.questions.iter().map(|one| one.question.as_str()).collect();
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
        let of = |steps| {
            (0..steps).map(|step| curriculum.phase(step, steps).1.start).collect::<Vec<_>>()
        };
        assert_eq!(of(6), [0, 0, 3, 3, 5, 5]);
        assert_eq!(of(7), [0, 0, 0, 3, 3, 5, 5]);
        assert_eq!(of(2), [0, 3], "a run that is too short for them all");
        assert_eq!(curriculum.phase(3, 6), (2..4, 3..5));
        let whole = Curriculum::of_one(file("easy", 4).1);
        assert_eq!(whole.phase(5, 9), (0..9, 0..4));
    }
}
