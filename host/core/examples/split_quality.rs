//! Measures the `prose` splitter on a file of real sentences, one a line, such as the `# text` lines of
//! a treebank: sentences with a terminator are joined five at a time, and split again.
//!
//! ```sh
//! cargo run --package corver-core --example split_quality -- de sentences.txt
//! ```

#![expect(clippy::print_stdout, reason = "an example reports on standard output")]

use std::error::Error;

use corver_core::Language;
use corver_core::prose::split_prose;

/// Sentences that are joined.
const JOINED: usize = 5;
/// Characters that end a sentence, before closing quotes and brackets.
const TERMINATORS: [char; 7] = ['.', '!', '?', '…', '。', '！', '？'];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [code, path] = arguments.as_slice() else { return Err("arguments: LANGUAGE FILE".into()) };
    let language: Language = serde_json::from_value(code.as_str().into())?;
    let text = std::fs::read_to_string(path)?;
    let mut sentences: Vec<&str> = text.lines().map(str::trim).collect();
    sentences.retain(|sentence| {
        sentence.trim_end_matches(['"', '”', '»', '“', '’', ')', '」']).ends_with(TERMINATORS)
    });
    let blank = if language == Language::Chinese { "" } else { " " };
    let (mut num_right, mut num_found, mut num_true) = (0, 0, 0);
    for joined in sentences.chunks_exact(JOINED) {
        let text = joined.join(blank);
        let true_ends = ends(&text, joined);
        let found_ends = ends(&text, &split_prose(&text, language));
        let right = found_ends.iter().filter(|end| true_ends.contains(end)).count();
        num_right += right;
        num_found += found_ends.len();
        num_true += true_ends.len();
    }
    println!(
        "{code}: {num_true} boundaries, precision {:.3}, recall {:.3}",
        num_right as f64 / num_found as f64,
        num_right as f64 / num_true as f64
    );
    Ok(())
}

/// Returns the ends of sentences within a text, in bytes, without the last.
fn ends(text: &str, sentences: &[&str]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = 0;
    for sentence in sentences {
        let start =
            text[end..].find(sentence).expect("sentences are parts of their text, in order");
        end += start + sentence.len();
        ends.push(end);
    }
    ends.pop();
    ends
}
