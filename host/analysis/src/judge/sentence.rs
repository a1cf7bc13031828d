//! Sentences of a calibration sheet, beside the people who labelled it. The model is shown the
//! sentence and nothing else.

use std::borrow::Cow;

use serde::Serialize;

use super::{Agreement, Judged, Subject};
use crate::calibrate::{Annotated, Calibration, Label, Row, TableError, calibrate};

impl Subject for Row {
    type Label = Label;
    const FIELDS: &'static [&'static str] = &["sentence"];
    const SHOWN: &'static [&'static str] = Self::FIELDS;
    const NEEDED: [Label; 2] = [Label::Correct, Label::Incorrect];

    fn field(&self, _: &str) -> Cow<'_, str> {
        self.sentence.as_str().into()
    }

    fn label(&self) -> Option<Label> {
        self.label
    }

    fn is_decided(label: Label) -> bool {
        label != Label::Unclear
    }
}

/// What a model says of a sheet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SentenceFindings {
    /// Sentences that it calls correct.
    pub affirmed: usize,
    /// Sentences that it calls incorrect.
    pub rejected: usize,
    /// Its labels by count, as if a person had given them: P(affirmed).
    pub affirmed_by_count: Option<Calibration>,
    /// The people's labels by count: P(correct). `None` where they gave none that says anything.
    pub correct_by_count: Option<Calibration>,
    /// Its labels of the sentences that people found wrong, by count: the share that it affirms all
    /// the same.
    pub missed_by_count: Option<Calibration>,
    /// Of sentences that both call correct or incorrect. `None` where there is none.
    #[serde(flatten)]
    pub agreement: Option<Agreement<2>>,
    /// Sentences that people labelled unclear: they are neither in the table nor in κ.
    pub unclear: usize,
}

impl SentenceFindings {
    /// Counts both judges' labels.
    ///
    /// # Errors
    /// Where the buckets of the sheets overlap.
    pub fn of(judged: &[Judged<'_, Row>]) -> Result<Self, TableError> {
        let model = |label| judged.iter().filter(|one| one.model == Some(label)).count();
        let of_model = |one: &Judged<'_, Row>| (one.subject.clone(), one.model);
        let people = |label| judged.iter().filter(move |one| one.subject.label == Some(label));
        let agreement = Agreement::of(Row::NEEDED, judged);
        Ok(Self {
            affirmed: model(Label::Correct),
            rejected: model(Label::Incorrect),
            affirmed_by_count: by_count(judged.iter().map(of_model))?,
            correct_by_count: by_count(
                judged.iter().map(|one| (one.subject.clone(), one.subject.label)),
            )?,
            missed_by_count: by_count(people(Label::Incorrect).map(of_model))?,
            unclear: people(Label::Unclear).count(),
            agreement: Some(agreement).filter(|agreement| agreement.labelled() > 0),
        })
    }
}

/// The calibration that the rows have with these labels; `None` where no label says anything.
///
/// # Errors
/// Where buckets overlap.
pub fn by_count(
    labelled: impl IntoIterator<Item = (Row, Option<Label>)>,
) -> Result<Option<Calibration>, TableError> {
    let rows = labelled.into_iter().map(|(row, label)| Row { label, ..row }).collect();
    match calibrate(&Annotated { rows, ..Annotated::default() }) {
        Err(TableError::NoLabels { .. }) => Ok(None),
        calibrated => calibrated.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::JudgeSettings;
    use super::*;
    use crate::calibrate::sheet::tests::row;

    const LABELS: [Option<Label>; 4] =
        [Some(Label::Correct), Some(Label::Incorrect), Some(Label::Unclear), None];

    /// So many sentences of each count, by the people's label (row) and the model's (column), in
    /// the order of `LABELS`.
    fn findings(sheet: &[(u64, [[usize; 4]; 4])]) -> SentenceFindings {
        let mut rows = Vec::new();
        for (count, table) in sheet {
            for (people, model) in (0..16).map(|place| (place / 4, place % 4)) {
                let one = |n| (row(n, *count, LABELS[people]), LABELS[model]);
                rows.extend((0..table[people][model]).map(one));
            }
        }
        let judged: Vec<_> = rows
            .iter()
            .map(|(subject, model)| Judged { subject, model: *model, reply: "" })
            .collect();
        SentenceFindings::of(&judged).unwrap()
    }

    #[test]
    fn sentence_judge_findings_match_paper_counts() {
        // 152 of 200 sentences of count 0 are wrong, and 25 of these are affirmed (App. case
        // study); the rest is made up.
        let zero = [[40, 8, 0, 0], [25, 127, 0, 0], [3, 2, 0, 0], [1, 0, 0, 1]];
        let many = [[9, 1, 1, 1], [4, 6, 0, 2], [0; 4], [0; 4]];
        let found = findings(&[(0, zero), (20, many)]);
        assert_eq!((found.affirmed, found.rejected, found.unclear), (82, 144, 5));
        let shares = |calibration: &Option<Calibration>| -> Vec<(u64, u64)> {
            calibration
                .as_ref()
                .unwrap()
                .buckets
                .iter()
                .map(|bucket| (bucket.share.correct, bucket.share.n))
                .collect()
        };
        assert_eq!(shares(&found.affirmed_by_count), [(69, 206), (13, 20)]);
        assert_eq!(shares(&found.correct_by_count), [(48, 200), (12, 24)]);
        assert_eq!(shares(&found.missed_by_count), [(25, 152), (4, 10)]);
        // Wilson's interval of 25 in 152: (25/152 + z²/304 ± z √(25·127/152³ + z²/304²)) / (1 +
        // z²/152).
        let share = found.missed_by_count.unwrap().buckets[0].share;
        assert_eq!([share.low, share.high].map(|end| (end * 1e3).round() / 1e3), [0.114, 0.232]);
        let agreement = found.agreement.unwrap();
        assert_eq!(agreement.table, [[49, 9], [29, 133]]);
        // Observed 182/220; expected (58·78 + 162·142)/220² = 27528/48400; κ = (40040 −
        // 27528)/(48400 − 27528) = 12512/20872.
        assert!((agreement.agreement - 182.0 / 220.0).abs() < 1e-12);
        assert!((agreement.kappa.unwrap().value - 12512.0 / 20872.0).abs() < 1e-12);
    }

    #[test]
    fn unlabelled_sheet_gives_model_findings_only() {
        let found = findings(&[(3, [[0; 4], [0; 4], [0; 4], [2, 1, 0, 1]])]);
        assert_eq!((found.affirmed, found.rejected, found.agreement), (2, 1, None));
        assert_eq!((found.correct_by_count, found.missed_by_count), (None, None));
        assert_eq!(found.affirmed_by_count.unwrap().unlabelled, 1);
    }

    #[test]
    fn sentence_judge_prompt_contains_only_sentence() {
        let prompt = "{question} {sentence} {golds}".to_owned();
        let labels =
            [("YES".to_owned(), Label::Correct), ("NO".to_owned(), Label::Incorrect)].into();
        let judge = JudgeSettings {
            system: String::new(),
            prompt,
            temperature: 0.0,
            max_tokens: 16,
            labels,
        };
        assert!(judge.check::<Row>().is_ok());
        let asked = judge.prompt_for(&row(1, 0, None)).messages;
        assert_eq!(asked[0].content, "{question} Sentence 1. {golds}");
    }
}
