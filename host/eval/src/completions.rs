//! Files of completions from other programs, for `corver-host score`.

use std::io::BufRead;
use std::path::Path;

use corver_core::{GivenTriplets, Question, Rollout};
use corver_data::GoldsField;
use serde::Deserialize;

use crate::lines::{self, LinesError, for_each_json_line};

/// Content of the files, for messages.
const WHAT: &str = "completions";
/// Form of a line, for messages.
const FORM: &str = concat!(
    r#"a line is {"question", "answers", "title", "evidence", "completion"}, "#,
    r#"where "title" and "evidence" (a list of texts) may be left out, "#,
    r#"with "triplets" as [[sentence, [[head, relation, tail], …]], …] where no extractor runs"#,
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletionLine {
    #[serde(default)]
    question: String,
    answers: GoldsField,
    title: Option<String>,
    #[serde(default)]
    evidence: Vec<String>,
    completion: String,
    triplets: Option<GivenTriplets>,
}

/// Completions of a file, with their questions.
pub struct CompletionSet {
    /// Line of each completion, counted from 1.
    pub lines: Vec<usize>,
    /// Question of each completion.
    pub questions: Vec<Question>,
    /// Completions as rollouts without tokens: each character counts as one.
    pub rollouts: Vec<Rollout>,
    /// Triplets of all sentences. `None`: the lines have none.
    pub triplets: Option<GivenTriplets>,
}

impl CompletionSet {
    /// Removes all completions but that of this line, counted from 1; `None` if the line has none.
    pub fn keep_line(&mut self, line: usize) -> Option<()> {
        let index = self.lines.iter().position(|own| *own == line)?;
        self.lines = vec![line];
        self.questions = vec![self.questions.swap_remove(index)];
        self.rollouts = vec![Rollout { question: 0, ..self.rollouts.swap_remove(index) }];
        Some(())
    }
}

/// Reads completions, one JSON object per line.
///
/// # Errors
/// Fails if the file cannot be read, a line is malformed, or two lines contradict each other.
pub fn read_completions(path: &Path) -> Result<CompletionSet, LinesError> {
    parse_completions(lines::open(path, WHAT)?, path)
}

/// Parses the text of a file of completions; `path` is for messages.
///
/// # Errors
/// Fails if the text cannot be read, a line is malformed, or two lines contradict each other.
pub fn parse_completions(source: impl BufRead, path: &Path) -> Result<CompletionSet, LinesError> {
    let mut completions = CompletionSet {
        lines: Vec::new(),
        questions: Vec::new(),
        rollouts: Vec::new(),
        triplets: None,
    };
    let mut given = GivenTriplets::default();
    let mut first_without = None;
    for_each_json_line(source, path, WHAT, FORM, |number, line: CompletionLine| {
        if line.triplets.is_none() {
            first_without.get_or_insert(number);
        }
        if let Some(triplets) = line.triplets {
            given.merge(triplets).map_err(|error| error.to_string())?;
        }
        let GoldsField(golds) = line.answers;
        completions.lines.push(number);
        completions.rollouts.push(Rollout::of_text(completions.questions.len(), line.completion));
        let CompletionLine { question, title, evidence, .. } = line;
        completions.questions.push(Question {
            question,
            golds,
            title,
            evidence,
            ..Question::default()
        });
        Ok(())
    })?;
    if completions.rollouts.is_empty() {
        return Err(LinesError(format!("{} holds no completion", path.display())));
    }
    match first_without {
        None => completions.triplets = Some(given),
        Some(line) if !given.is_empty() => {
            let problem = "this line has no \"triplets\", others have; give them in every line or \
                           in none";
            return Err(LinesError::at_line(path, line, problem));
        }
        Some(_) => {}
    }
    Ok(completions)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use corver_core::{Extractor as _, ExtractorInput};

    use super::*;

    fn read(text: &str) -> Result<CompletionSet, LinesError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read_completions(file.path())
    }

    fn refusal(text: &str) -> String {
        let Err(error) = read(text) else { panic!("it is refused") };
        error.to_string()
    }

    #[test]
    fn completion_lines_may_carry_triplets() {
        let text = r#"{"question": "q", "answers": "a; b", "completion": "A is B.", "triplets": [["A is B.", [["A", "is", "B"]]]]}"#;
        let mut completions = read(text).unwrap();
        assert_eq!(completions.questions[0].golds, ["a", "b"]);
        let given = completions.triplets.as_mut().unwrap();
        assert_eq!(
            given.extract(&[ExtractorInput::of_sentence("A is B.")]).unwrap()[0][0].tail,
            "B"
        );
        assert!(
            given
                .extract(&[ExtractorInput::of_sentence("C.")])
                .unwrap_err()
                .to_string()
                .contains("C.")
        );
    }

    #[test]
    fn answers_may_be_a_list() {
        let golds = |answers: &str| {
            read(&format!(r#"{{"completion": "x", "answers": {answers}}}"#))
                .map(|read| read.questions[0].golds.clone())
        };
        assert_eq!(golds(r#"["a; b", "c"]"#).unwrap(), ["a; b", "c"]);
        assert_eq!(golds(r#""a; c""#).unwrap(), ["a", "c"]);
        assert_eq!(golds(r#""[\"a; b\", \"c\"]""#).unwrap(), ["a; b", "c"]);
        assert!(golds(r#"";""#).unwrap().is_empty());
        assert_eq!(golds("7").unwrap(), ["7"]);
        let error = golds(r#"[["a"]]"#).unwrap_err().to_string();
        assert!(error.contains("`an item of answers` is [\"a\"], not a text"), "{error}");
    }

    #[test]
    fn single_completion_line_is_selectable() {
        let text = "{\"question\": \"a\", \"completion\": \"x\", \"answers\": \"z\"}\n\n{\"question\": \"b\", \"completion\": \"y\", \"answers\": \"z\"}\n";
        let mut completions = read(text).unwrap();
        assert_eq!(completions.lines, [1, 3]);
        assert!(completions.keep_line(2).is_none());
        completions.keep_line(3).unwrap();
        assert_eq!(
            (completions.questions[0].question.as_str(), completions.rollouts[0].text.as_str()),
            ("b", "y")
        );
        assert_eq!((completions.rollouts.len(), completions.rollouts[0].question), (1, 0));
    }

    #[test]
    fn empty_completions_file_is_rejected() {
        assert!(refusal("\n").ends_with("holds no completion"));
    }

    #[test]
    fn bad_line_is_named_in_error() {
        let error = read("{\"completion\": \"x\", \"answers\": \"z\"}\n{\"question\": \"y\", \"answers\": \"z\"}\n")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(":2:") && error.contains("`completion`"), "{error}");
        let error = read("{\"completion\": \"x\"}\n").err().unwrap().to_string();
        assert!(
            error.contains("`answers`"),
            "without them every completion would be graded wrong: {error}"
        );
        let twice = r#"{"completion": "x", "answers": "z", "triplets": [["S.", []], ["S.", [["A", "r", "B"]]]]}"#;
        assert!(refusal(twice).contains("other triplets were given before"));
        let mixed = "{\"completion\": \"x\", \"answers\": \"z\", \"triplets\": [[\"S.\", []]]}\n{\"completion\": \"S.\", \"answers\": \"z\"}\n";
        assert!(refusal(mixed).contains(":2: this line has no \"triplets\""));
    }
}
