//! Sentences of a calibration sheet as items of a judge, compared with the people who labelled it. The
//! prompt shows only the sentence.

use std::borrow::Cow;

use serde::Serialize;

use super::{JudgeAgreement, JudgeSubject, JudgedSubject};
use crate::calibrate::table::clustered_share;
use crate::calibrate::{
    Annotated, Calibration, CorrectShare, SheetRow, TableError, TruthLabel, calibrate,
};

impl JudgeSubject for SheetRow {
    type Label = TruthLabel;
    const FIELDS: &'static [&'static str] = &["sentence"];
    const SHOWN: &'static [&'static str] = Self::FIELDS;
    const NEEDED: [TruthLabel; 2] = [TruthLabel::Correct, TruthLabel::Incorrect];

    fn field(&self, _: &str) -> Cow<'_, str> {
        self.sentence.as_str().into()
    }

    fn label(&self) -> Option<TruthLabel> {
        self.label
    }

    fn is_decided(label: TruthLabel) -> bool {
        label != TruthLabel::Unclear
    }
}

/// Labels of a model for a sheet, compared with those of people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SentenceFindings {
    /// Number of sentences that the model labels correct.
    pub affirmed: usize,
    /// Number of sentences that the model labels incorrect.
    pub rejected: usize,
    /// Calibration with the model's labels: P(affirmed) by count; `None` without labels.
    pub affirmed_by_count: Option<Calibration>,
    /// Calibration with the people's labels: P(correct) by count; `None` without labels.
    pub correct_by_count: Option<Calibration>,
    /// Share that the model affirms of the sentences that people label incorrect, by count; `None`
    /// without such sentences.
    pub missed_by_count: Option<Calibration>,
    /// Share that the model affirms of all sentences that people label incorrect. `None`: there are
    /// no such sentences.
    pub missed: Option<CorrectShare>,
    /// Agreement on sentences that both label correct or incorrect; `None` if there are none.
    #[serde(flatten)]
    pub agreement: Option<JudgeAgreement<2>>,
    /// Number of sentences that people label unclear; they are neither in the table nor in κ.
    pub unclear: usize,
}

impl SentenceFindings {
    /// Counts the labels of both judges.
    ///
    /// # Errors
    /// If the buckets of the sheets overlap.
    pub fn new(judged: &[JudgedSubject<'_, SheetRow>]) -> Result<Self, TableError> {
        let mut affirmed = 0;
        let mut rejected = 0;
        let mut unclear = 0;
        let mut by_model = Vec::with_capacity(judged.len());
        let mut by_people = Vec::with_capacity(judged.len());
        let mut incorrect_by_model = Vec::new();
        // Questions of the sentences that people label incorrect; true for an affirmed one.
        let mut incorrect = Vec::new();
        for item in judged {
            let row = item.subject;
            affirmed += usize::from(item.model == Some(TruthLabel::Correct));
            rejected += usize::from(item.model == Some(TruthLabel::Incorrect));
            unclear += usize::from(row.label == Some(TruthLabel::Unclear));
            by_model.push((row.clone(), item.model));
            by_people.push((row.clone(), row.label));
            if row.label == Some(TruthLabel::Incorrect) {
                incorrect_by_model.push((row.clone(), item.model));
            }
            if let Some((TruthLabel::Incorrect, label)) = item.labels() {
                incorrect.push((row.question.as_str(), label == TruthLabel::Correct));
            }
        }
        let agreement = JudgeAgreement::count(SheetRow::NEEDED, judged);
        Ok(Self {
            affirmed,
            rejected,
            affirmed_by_count: by_count(by_model)?,
            correct_by_count: by_count(by_people)?,
            missed_by_count: by_count(incorrect_by_model)?,
            missed: clustered_share(&incorrect),
            unclear,
            agreement: (agreement.labelled() > 0).then_some(agreement),
        })
    }
}

/// Returns the calibration of rows with these labels; `None` if no label is correct or incorrect.
///
/// # Errors
/// If buckets overlap.
pub fn by_count(
    labelled: impl IntoIterator<Item = (SheetRow, Option<TruthLabel>)>,
) -> Result<Option<Calibration>, TableError> {
    let rows = labelled.into_iter().map(|(row, label)| SheetRow { label, ..row }).collect();
    match calibrate(&Annotated { rows, ..Annotated::default() }) {
        Err(TableError::NoLabels { .. }) => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::JudgeSettings;
    use super::*;
    use crate::calibrate::sheet::tests::row;

    const LABELS: [Option<TruthLabel>; 4] =
        [Some(TruthLabel::Correct), Some(TruthLabel::Incorrect), Some(TruthLabel::Unclear), None];

    /// Returns the findings for numbers of sentences of each count, by the people's label (row) and
    /// the model's (column), in the order of `LABELS`.
    fn findings(sheet: &[(u64, [[usize; 4]; 4])]) -> SentenceFindings {
        let mut rows = Vec::new();
        for (count, table) in sheet {
            for (people, models) in table.iter().enumerate() {
                for (model, &number) in models.iter().enumerate() {
                    for _ in 0..number {
                        rows.push((row(rows.len(), *count, LABELS[people]), LABELS[model]));
                    }
                }
            }
        }
        let judged: Vec<_> = rows
            .iter()
            .map(|(subject, model)| JudgedSubject { subject, model: *model, reply: "" })
            .collect();
        SentenceFindings::new(&judged).unwrap()
    }

    #[test]
    fn sentence_judge_findings_match_paper_counts() {
        // 152 of 200 sentences of count 0 are wrong, and 25 of these are affirmed (App. case
        // study); the other numbers are invented.
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
    fn affirmed_sentences_of_one_question_are_not_independent() {
        let mut rows = Vec::new();
        for n in 0..200 {
            let mut wrong = row(n, 0, LABELS[1]);
            wrong.question = format!("q{}", n / 10);
            rows.push(wrong);
        }
        let mut judged = Vec::new();
        for (n, subject) in rows.iter().enumerate() {
            let model = if n < 50 { LABELS[0] } else { LABELS[1] };
            judged.push(JudgedSubject { subject, model, reply: "" });
        }
        let missed = SentenceFindings::new(&judged).unwrap().missed.unwrap();
        assert_eq!((missed.correct, missed.n), (50, 200));
        // 20 questions have 19 degrees of freedom.
        assert!((missed.effective - 19.0).abs() < 1e-9, "{missed:?}");
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
            [("YES".to_owned(), TruthLabel::Correct), ("NO".to_owned(), TruthLabel::Incorrect)]
                .into();
        let judge = JudgeSettings {
            system: String::new(),
            prompt,
            temperature: 0.0,
            max_tokens: 16,
            labels,
        };
        assert!(judge.check::<SheetRow>().is_ok());
        let messages = judge.prompt_for(&row(1, 0, None)).messages;
        assert_eq!(messages[0].content, "{question} Sentence 1. {golds}");
    }
}
