//! Merges the sheets of several people, and measures their agreement.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::label::{RaterAgreement, TruthLabel, agreement, majority};
use super::sheet::{SheetError, SheetRow, read_sheet};

/// Sentences of all sheets. Several people may have labelled the same ones, each in their own sheet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotated {
    /// Sentences without duplicates, each with the label of the majority of people; without a
    /// person's label, of the models.
    pub rows: Vec<SheetRow>,
    /// Agreement of the people; `None` if no sentence has the labels of two.
    pub agreement: Option<RaterAgreement>,
    /// Number of sentences whose label is a model's.
    pub by_model: u64,
}

/// Labels of one sentence in all sheets.
#[derive(Default)]
struct SentenceLabels {
    people: Vec<TruthLabel>,
    models: Vec<TruthLabel>,
}

impl SentenceLabels {
    fn add(&mut self, row: &SheetRow) {
        let labels = if row.is_by_model() { &mut self.models } else { &mut self.people };
        labels.extend(row.label);
    }
}

/// Reads sheets, one of each person.
///
/// # Errors
/// If a sheet cannot be read, has invalid cells, or contradicts another.
pub fn read_sheets(paths: &[PathBuf]) -> Result<Annotated, SheetError> {
    merge_sheets(paths, |_| true)
}

/// Reads sheets without the labels of models.
///
/// # Errors
/// As [`read_sheets`].
pub fn read_sheets_of_people(paths: &[PathBuf]) -> Result<Annotated, SheetError> {
    merge_sheets(paths, |row| !row.is_by_model())
}

fn merge_sheets(
    paths: &[PathBuf],
    is_label_used: impl Fn(&SheetRow) -> bool,
) -> Result<Annotated, SheetError> {
    let mut rows: Vec<SheetRow> = Vec::new();
    let mut labels: Vec<SentenceLabels> = Vec::new();
    let mut known: HashMap<String, (usize, &Path)> = HashMap::new();
    for path in paths {
        for (line, mut row) in read_sheet(path)? {
            row.label = row.label.filter(|_| is_label_used(&row));
            let (index, other) = *known.entry(row.id.clone()).or_insert((rows.len(), path));
            if index == rows.len() {
                labels.push(SentenceLabels::default());
                labels[index].add(&row);
                rows.push(row);
                continue;
            }
            let first = &rows[index];
            for (column, is_same) in [
                ("count", first.count == row.count),
                ("bucket", first.bucket == row.bucket),
                ("sentence", first.sentence == row.sentence),
            ] {
                if !is_same {
                    return Err(SheetError::InvalidSheet(format!(
                        "{}:{line}: the sentence {} has another {column} than in {}",
                        path.display(),
                        row.id,
                        other.display()
                    )));
                }
            }
            labels[index].add(&row);
        }
    }
    let mut by_model = 0;
    for (row, labels_of_row) in rows.iter_mut().zip(&labels) {
        row.label = majority(&labels_of_row.people);
        if row.label.is_none() {
            row.label = majority(&labels_of_row.models);
            by_model += u64::from(row.label.is_some());
        }
    }
    let agreement = agreement(labels.iter().map(|labels_of_row| labels_of_row.people.as_slice()));
    Ok(Annotated { rows, agreement, by_model })
}

#[cfg(test)]
mod tests {
    use super::super::sheet::tests::row;
    use super::super::sheet::write_sheet;
    use super::*;

    #[test]
    fn annotator_sheets_are_merged_by_majority() {
        let folder = tempfile::tempdir().unwrap();
        let sheets: Vec<PathBuf> = [["c", "i", ""], ["c", "c", ""], ["i", "i", "c"]]
            .iter()
            .enumerate()
            .map(|(n, labels)| {
                let label = |n: usize| labels[n].parse().ok();
                let path = folder.path().join(format!("{n}.csv"));
                write_sheet(
                    &path,
                    &[row(1, 0, label(0)), row(2, 3, label(1)), row(3, 9, label(2))],
                )
                .unwrap();
                path
            })
            .collect();
        let annotated = read_sheets(&sheets).unwrap();
        let labels: Vec<_> = annotated.rows.iter().map(|row| row.label).collect();
        assert_eq!(
            labels,
            [Some(TruthLabel::Correct), Some(TruthLabel::Incorrect), Some(TruthLabel::Correct)]
        );
        assert_eq!(annotated.agreement.unwrap().sentences, 2);

        let other = folder.path().join("other.csv");
        write_sheet(&other, &[row(1, 2, None)]).unwrap();
        let error = read_sheets(&[sheets[0].clone(), other]).unwrap_err().to_string();
        assert!(
            error.contains("other.csv:2: the sentence s1 has another count than in"),
            "{error}"
        );
    }

    #[test]
    fn model_labels_are_distinguished_from_human_labels() {
        let folder = tempfile::tempdir().unwrap();
        let own = SheetRow { note: "=see p. 3".into(), ..row(2, 3, Some(TruthLabel::Incorrect)) };
        let by_model = [row(1, 0, None), own.clone()]
            .map(|row| row.labelled_by("m", Some(TruthLabel::Correct)));
        assert_eq!([&by_model[0].note, &by_model[1].note], ["model: m", "model: m; =see p. 3"]);
        assert_eq!(by_model[1].labelled_by("other", None), SheetRow { label: None, ..own.clone() });

        let [one, other] = ["model.csv", "own.csv"].map(|name| folder.path().join(name));
        write_sheet(&one, &by_model).unwrap();
        write_sheet(&other, &[own]).unwrap();
        let sheets = [one, other];
        let labels =
            |annotated: &Annotated| annotated.rows.iter().map(|row| row.label).collect::<Vec<_>>();
        let all = read_sheets(&sheets).unwrap();
        assert_eq!(
            (labels(&all), all.by_model),
            (vec![Some(TruthLabel::Correct), Some(TruthLabel::Incorrect)], 1)
        );
        assert_eq!(all.agreement, None);
        let peoples = read_sheets_of_people(&sheets).unwrap();
        assert_eq!(
            (labels(&peoples), peoples.by_model),
            (vec![None, Some(TruthLabel::Incorrect)], 0)
        );
        assert_eq!(peoples.agreement, None);
    }

    #[test]
    fn model_label_is_no_vote_where_people_labelled() {
        let folder = tempfile::tempdir().unwrap();
        let sheets: Vec<PathBuf> =
            ["model.csv", "one.csv", "other.csv"].map(|name| folder.path().join(name)).into();
        for (path, labels) in sheets.iter().zip([["i", "i"], ["c", "i"], ["c", "c"]]) {
            let mut rows =
                vec![row(1, 0, labels[0].parse().ok()), row(2, 3, labels[1].parse().ok())];
            if path.ends_with("model.csv") {
                rows = rows.iter().map(|row| row.labelled_by("m", row.label)).collect();
            }
            write_sheet(path, &rows).unwrap();
        }
        let annotated = read_sheets(&sheets).unwrap();
        let labels: Vec<_> = annotated.rows.iter().map(|row| row.label).collect();
        assert_eq!(labels, [Some(TruthLabel::Correct), Some(TruthLabel::Unclear)]);
        assert_eq!(annotated.by_model, 0);
        let agreement = annotated.agreement.unwrap();
        assert_eq!((agreement.sentences, agreement.share), (2, 0.5));
    }
}
