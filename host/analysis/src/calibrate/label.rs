//! Labels that people give to sentences, and their agreement.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One person's judgement of one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruthLabel {
    /// Everything that the sentence states is true.
    Correct,
    /// Something that the sentence states is false.
    Incorrect,
    /// The truth of the sentence cannot be determined.
    Unclear,
}

impl TruthLabel {
    const ALL: [Self; 3] = [Self::Correct, Self::Incorrect, Self::Unclear];

    /// Returns the word for the label in a sheet.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Incorrect => "incorrect",
            Self::Unclear => "unclear",
        }
    }
}

impl fmt::Display for TruthLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for TruthLabel {
    type Err = ();

    /// Parses the word or its first letter, in any case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim().to_lowercase();
        Self::ALL
            .into_iter()
            .find(|label| text == label.word() || text == label.word()[..1])
            .ok_or(())
    }
}

/// Returns the label of the majority; unclear for a tie. `None` without labels.
#[must_use]
pub fn majority(labels: &[TruthLabel]) -> Option<TruthLabel> {
    let votes = count_votes(labels);
    let most_votes = *votes.iter().max()?;
    if most_votes == 0 {
        return None;
    }
    let mut winners =
        TruthLabel::ALL.into_iter().zip(votes).filter(|(_, number)| *number == most_votes);
    let (first, _) = winners.next()?;
    Some(if winners.next().is_some() { TruthLabel::Unclear } else { first })
}

/// Counts each label, in the order of [`TruthLabel::ALL`].
fn count_votes(labels: &[TruthLabel]) -> [usize; 3] {
    TruthLabel::ALL.map(|label| labels.iter().filter(|&&vote| vote == label).count())
}

/// Agreement of people who labelled the same sentences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RaterAgreement {
    /// Sentences with two labels or more.
    pub sentences: usize,
    /// Share of a sentence's pairs of labels that are equal, mean over the sentences, 0 to 1.
    pub share: f64,
    /// Fleiss' κ: 0 for agreement by chance, 1 for full agreement; `None` if all labels are the
    /// same.
    pub kappa: Option<f64>,
}

/// Measures the agreement on sentences with two labels or more; `None` if there are none.
#[must_use]
pub fn agreement<'a>(sentences: impl Iterator<Item = &'a [TruthLabel]>) -> Option<RaterAgreement> {
    let several: Vec<&[TruthLabel]> = sentences.filter(|labels| labels.len() > 1).collect();
    if several.is_empty() {
        return None;
    }
    let share =
        several.iter().map(|labels| equal_pairs(labels)).sum::<f64>() / several.len() as f64;
    let votes = count_votes(&several.concat()).map(|number| number as f64);
    let total: f64 = votes.iter().sum();
    let by_chance: f64 = votes.iter().map(|number| (number / total).powi(2)).sum();
    let kappa = (by_chance < 1.0).then(|| (share - by_chance) / (1.0 - by_chance));
    Some(RaterAgreement { sentences: several.len(), share, kappa })
}

/// Returns the share of pairs of labels that are equal.
fn equal_pairs(labels: &[TruthLabel]) -> f64 {
    let n = labels.len() as f64;
    let votes = count_votes(labels).map(|number| number as f64);
    votes.iter().map(|number| number * (number - 1.0)).sum::<f64>() / (n * (n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::TruthLabel::{Correct, Incorrect, Unclear};
    use super::*;

    #[test]
    fn label_parses_words_or_letters() {
        for (text, label) in
            [(" Correct ", Correct), ("INCORRECT", Incorrect), ("u", Unclear), ("I", Incorrect)]
        {
            assert_eq!(text.parse(), Ok(label));
        }
        for text in ["", "corect", "true", "correct?"] {
            assert!(text.parse::<TruthLabel>().is_err(), "{text}");
        }
    }

    #[test]
    fn majority_label_wins_and_ties_are_unclear() {
        assert_eq!(majority(&[]), None);
        assert_eq!(majority(&[Incorrect, Correct, Incorrect]), Some(Incorrect));
        assert_eq!(majority(&[Incorrect, Correct]), Some(Unclear));
        assert_eq!(majority(&[Correct, Correct, Unclear, Unclear, Incorrect]), Some(Unclear));
    }

    #[test]
    fn kappa_measures_agreement_beyond_chance() {
        let of = |sentences: &[&[TruthLabel]]| agreement(sentences.iter().copied());
        assert_eq!(of(&[&[Correct], &[]]), None);
        let same = of(&[&[Correct, Correct], &[Correct, Correct, Correct]]).unwrap();
        assert_eq!((same.sentences, same.share, same.kappa), (2, 1.0, None));
        // Half the pairs agree, as two coins would.
        let coins = of(&[
            &[Correct, Correct],
            &[Correct, Incorrect],
            &[Incorrect, Correct],
            &[Incorrect, Incorrect],
        ]);
        assert_eq!(coins, Some(RaterAgreement { sentences: 4, share: 0.5, kappa: Some(0.0) }));
    }
}
