//! A file of completions that were written elsewhere, for `corver-host score`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::{BoxError, Extractor, Question, Rollout, Triplet};
use corver_data::Answers;
use serde::Deserialize;

/// Why a file of completions cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionsError {
    /// The file cannot be read.
    #[error("cannot read the completions {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file cannot be used; the message says where and why.
    #[error("{0}")]
    Invalid(String),
}

/// Form of a line.
const FORM: &str = r#"a line is {"question", "answers", "title", "evidence", "completion"}, where "title" and "evidence" (a list of texts) may be left out, with "triplets" as [[sentence, [[head, relation, tail], …]], …] where no extractor runs"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    question: String,
    answers: Answers,
    title: Option<String>,
    #[serde(default)]
    evidence: Vec<String>,
    completion: String,
    triplets: Option<Vec<(String, Vec<Parts>)>>,
}

/// Head, relation, tail.
type Parts = (String, String, String);

/// Triplets that come with the completions, in place of an extractor.
#[derive(Debug, Default)]
pub struct GivenTriplets(HashMap<String, Vec<Triplet>>);

/// What a file of completions holds.
pub struct Completions {
    /// The line that each completion stands in, counted from 1.
    pub lines: Vec<usize>,
    /// One per completion.
    pub questions: Vec<Question>,
    /// Text without tokens: each character stands for one.
    pub rollouts: Vec<Rollout>,
    /// Present where every line gives its triplets.
    pub triplets: Option<GivenTriplets>,
}

impl Completions {
    /// Leaves only the completion in this line, counted from 1; `None` where there is none.
    pub fn keep_line(&mut self, line: usize) -> Option<()> {
        let place = self.lines.iter().position(|&of| of == line)?;
        self.lines = vec![line];
        self.questions = vec![self.questions.swap_remove(place)];
        self.rollouts = vec![Rollout { question: 0, ..self.rollouts.swap_remove(place) }];
        Some(())
    }
}

/// Reads completions, one JSON object per line.
///
/// # Errors
/// Where the file cannot be read, a line is malformed, or two lines contradict each other.
pub fn read_completions(path: &Path) -> Result<Completions, CompletionsError> {
    let read = |source| CompletionsError::Read { path: path.to_owned(), source };
    let mut completions = Completions {
        lines: Vec::new(),
        questions: Vec::new(),
        rollouts: Vec::new(),
        triplets: None,
    };
    let mut given = GivenTriplets::default();
    let mut without = None;
    for (number, text) in BufReader::new(File::open(path).map_err(read)?).lines().enumerate() {
        let text = text.map_err(read)?;
        if text.trim().is_empty() {
            continue;
        }
        let place = format!("{}:{}", path.display(), number + 1);
        let at = |problem: serde_json::Error| {
            CompletionsError::Invalid(format!("{place}: {problem}; {FORM}"))
        };
        let line: Line = serde_json::from_str(&text).map_err(at)?;
        if line.triplets.is_none() {
            without.get_or_insert(number + 1);
        }
        for (sentence, triplets) in line.triplets.into_iter().flatten() {
            given.add(sentence, triplets).map_err(|sentence| {
                let problem = "other triplets were given before for the sentence";
                CompletionsError::Invalid(format!("{place}: {problem} {sentence:?}"))
            })?;
        }
        let golds =
            line.answers.golds().map_err(|problem| at(serde::de::Error::custom(problem)))?;
        completions.lines.push(number + 1);
        completions.rollouts.push(Rollout::of_text(completions.questions.len(), line.completion));
        let Line { question, title, evidence, .. } = line;
        completions.questions.push(Question {
            question,
            golds,
            title,
            evidence,
            ..Question::default()
        });
    }
    if completions.rollouts.is_empty() {
        let problem = format!("{} holds no completion", path.display());
        return Err(CompletionsError::Invalid(problem));
    }
    match without {
        None => completions.triplets = Some(given),
        Some(line) if !given.0.is_empty() => {
            return Err(CompletionsError::Invalid(format!(
                "{}:{line}: this line has no \"triplets\", others have; give them in every line or \
                 in none",
                path.display()
            )));
        }
        Some(_) => {}
    }
    Ok(completions)
}

impl GivenTriplets {
    fn add(&mut self, sentence: String, triplets: Vec<Parts>) -> Result<(), String> {
        let triplets: Vec<Triplet> = triplets
            .into_iter()
            .map(|(head, relation, tail)| Triplet { head, relation, tail })
            .collect();
        match self.0.get(&sentence) {
            Some(known) if *known != triplets => Err(sentence),
            _ => {
                self.0.insert(sentence, triplets);
                Ok(())
            }
        }
    }
}

impl Extractor for GivenTriplets {
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        let given = |sentence: &&str| {
            let known = self.0.get(*sentence).cloned();
            known.ok_or_else(|| {
                format!(
                    "no triplets are given for the sentence {sentence:?}; where it states no fact, \
                     give [{sentence:?}, []]"
                )
                .into()
            })
        };
        sentences.iter().map(given).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<Completions, CompletionsError> {
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
        assert_eq!(given.extract(&["A is B."]).unwrap()[0][0].tail, "B");
        assert!(given.extract(&["C."]).unwrap_err().to_string().contains("C."));
    }

    #[test]
    fn answers_may_be_a_list() {
        let golds = |answers: &str| {
            read(&format!(r#"{{"completion": "x", "answers": {answers}}}"#))
                .map(|read| read.questions[0].golds.clone())
        };
        assert_eq!(golds(r#"["a; b", "c"]"#).unwrap(), ["a; b", "c"]);
        assert_eq!(golds(r#""a; c""#).unwrap(), ["a", "c"]);
        assert!(golds(r#"";""#).unwrap_err().to_string().contains("no gold answer"));
        assert!(golds("7").unwrap_err().to_string().contains("`answers` is neither"));
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
