//! What people say of a sentence.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One person's word on one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// All that it states is true.
    Correct,
    /// Something that it states is false.
    Incorrect,
    /// Nobody can say.
    Unclear,
}

impl Label {
    const ALL: [Self; 3] = [Self::Correct, Self::Incorrect, Self::Unclear];

    /// As it is written in a sheet.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Incorrect => "incorrect",
            Self::Unclear => "unclear",
        }
    }
}

/// Its word.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Label {
    type Err = ();

    /// The word or its first letter, in any case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim().to_lowercase();
        Self::ALL
            .into_iter()
            .find(|label| text == label.word() || text == label.word()[..1])
            .ok_or(())
    }
}

/// The label that most people gave; unclear where there are several. `None` of nobody.
#[must_use]
pub fn majority(labels: &[Label]) -> Option<Label> {
    let votes = |label: Label| labels.iter().filter(|&&given| given == label).count();
    let most = Label::ALL.into_iter().map(votes).max().filter(|&most| most > 0)?;
    let mut winners = Label::ALL.into_iter().filter(|&label| votes(label) == most);
    let first = winners.next()?;
    Some(if winners.next().is_some() { Label::Unclear } else { first })
}

/// How far people agree who labelled the same sentences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// Sentences with two labels or more.
    pub sentences: usize,
    /// Share of the pairs of labels of a sentence that are equal, on average.
    pub share: f64,
    /// Fleiss' κ: 0 where they agree as often as by chance, 1 where always; `None` where all labels
    /// are the same.
    pub kappa: Option<f64>,
}

/// `None` where no sentence has two labels.
#[must_use]
pub fn agreement<'a>(sentences: impl Iterator<Item = &'a [Label]>) -> Option<Agreement> {
    let several: Vec<&[Label]> = sentences.filter(|labels| labels.len() > 1).collect();
    if several.is_empty() {
        return None;
    }
    let votes = |labels: &[Label]| {
        Label::ALL.map(|label| labels.iter().filter(|&&given| given == label).count() as f64)
    };
    let equal_pairs = |labels: &&[Label]| {
        let n = labels.len() as f64;
        votes(labels).iter().map(|count| count * (count - 1.0)).sum::<f64>() / (n * (n - 1.0))
    };
    let share = several.iter().map(equal_pairs).sum::<f64>() / several.len() as f64;
    let all = votes(&several.concat());
    let total: f64 = all.iter().sum();
    let by_chance: f64 = all.iter().map(|count| (count / total).powi(2)).sum();
    let kappa = (by_chance < 1.0).then(|| (share - by_chance) / (1.0 - by_chance));
    Some(Agreement { sentences: several.len(), share, kappa })
}

#[cfg(test)]
mod tests {
    use super::Label::{Correct, Incorrect, Unclear};
    use super::*;

    #[test]
    fn label_parses_words_or_letters() {
        for (text, label) in
            [(" Correct ", Correct), ("INCORRECT", Incorrect), ("u", Unclear), ("I", Incorrect)]
        {
            assert_eq!(text.parse(), Ok(label));
        }
        for text in ["", "corect", "true", "correct?"] {
            assert!(text.parse::<Label>().is_err(), "{text}");
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
        let of = |sentences: &[&[Label]]| agreement(sentences.iter().copied());
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
        assert_eq!(coins, Some(Agreement { sentences: 4, share: 0.5, kappa: Some(0.0) }));
    }
}
