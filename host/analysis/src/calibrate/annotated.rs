//! The sheets of several people → each sentence once, and how far they agree.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::label::{Agreement, Label, agreement, majority};
use super::sheet::{Row, SheetError, read_sheet};

/// The sentences of all sheets; several people may have labelled the same ones, each in a sheet of
/// their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotated {
    /// Each sentence once, under the label that most people gave.
    pub rows: Vec<Row>,
    /// How far they agree.
    pub agreement: Option<Agreement>,
    /// Sentences with a label that a model gave.
    pub by_model: u64,
}

/// Reads sheets, one of each person.
///
/// # Errors
/// What is wrong in the first file that has something wrong.
pub fn read_sheets(paths: &[PathBuf]) -> Result<Annotated, SheetError> {
    read(paths, |_| true)
}

/// The same, without the labels that a model gave.
///
/// # Errors
/// What is wrong in the first file that has something wrong.
pub fn read_peoples_sheets(paths: &[PathBuf]) -> Result<Annotated, SheetError> {
    read(paths, |row| !row.is_by_model())
}

fn read(paths: &[PathBuf], counts: impl Fn(&Row) -> bool) -> Result<Annotated, SheetError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut labels: Vec<Vec<Label>> = Vec::new();
    let mut known: HashMap<String, (usize, &Path)> = HashMap::new();
    let mut by_model: HashSet<String> = HashSet::new();
    for path in paths {
        for (line, mut row) in read_sheet(path)? {
            row.label = row.label.filter(|_| counts(&row));
            if row.label.is_some() && row.is_by_model() {
                by_model.insert(row.id.clone());
            }
            let (place, other) = *known.entry(row.id.clone()).or_insert((rows.len(), path));
            if place == rows.len() {
                labels.push(row.label.into_iter().collect());
                rows.push(row);
                continue;
            }
            let first = &rows[place];
            let same = [
                ("count", first.count == row.count),
                ("bucket", first.bucket == row.bucket),
                ("sentence", first.sentence == row.sentence),
            ];
            if let Some((column, _)) = same.into_iter().find(|(_, same)| !same) {
                return Err(SheetError::InvalidSheet(format!(
                    "{}:{line}: the sentence {} has another {column} than in {}",
                    path.display(),
                    row.id,
                    other.display()
                )));
            }
            labels[place].extend(row.label);
        }
    }
    rows.iter_mut().zip(&labels).for_each(|(row, labels)| row.label = majority(labels));
    let agreement = agreement(labels.iter().map(Vec::as_slice));
    Ok(Annotated { rows, agreement, by_model: by_model.len() as u64 })
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
        assert_eq!(labels, [Some(Label::Correct), Some(Label::Incorrect), Some(Label::Correct)]);
        assert_eq!(annotated.agreement.unwrap().sentences, 2);

        let other = folder.path().join("other.csv");
        write_sheet(&other, &[row(1, 2, None)]).unwrap();
        let told = read_sheets(&[sheets[0].clone(), other]).unwrap_err().to_string();
        assert!(told.contains("other.csv:2: the sentence s1 has another count than in"), "{told}");
    }

    #[test]
    fn model_labels_are_distinguished_from_human_labels() {
        let folder = tempfile::tempdir().unwrap();
        let own = Row { note: "=see p. 3".into(), ..row(2, 3, Some(Label::Incorrect)) };
        let by_model =
            [row(1, 0, None), own.clone()].map(|row| row.labelled_by("m", Some(Label::Correct)));
        assert_eq!([&by_model[0].note, &by_model[1].note], ["model: m", "model: m; =see p. 3"]);
        assert_eq!(by_model[1].labelled_by("other", None), Row { label: None, ..own.clone() });

        let [one, other] = ["model.csv", "own.csv"].map(|name| folder.path().join(name));
        write_sheet(&one, &by_model).unwrap();
        write_sheet(&other, &[own]).unwrap();
        let sheets = [one, other];
        let labels =
            |annotated: &Annotated| annotated.rows.iter().map(|row| row.label).collect::<Vec<_>>();
        let all = read_sheets(&sheets).unwrap();
        assert_eq!(
            (labels(&all), all.by_model),
            (vec![Some(Label::Correct), Some(Label::Unclear)], 2)
        );
        let peoples = read_peoples_sheets(&sheets).unwrap();
        assert_eq!((labels(&peoples), peoples.by_model), (vec![None, Some(Label::Incorrect)], 0));
        assert_eq!(peoples.agreement, None);
    }
}
