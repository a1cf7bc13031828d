//! Demonstrations for supervised fine-tuning, written from questions and golds by a template.

use corver_core::response::{AnswerRule, Label, format_reward};
use corver_core::{Compatibility, Demonstration, Question};

/// Template of a completion in the paper's format. The reasoning is longer than the format check
/// demands, and states nothing but the question and the gold.
pub const DEMONSTRATION_TEMPLATE: &str = "<think>The question is: {question} \
    The answer to this question is {answer}.</think><answer>{answer}</answer>";

/// Returns a demonstration with the question's first gold that can be graded. `{question}` and
/// `{answer}` in the template are replaced. `None`: the question has no gold.
///
/// # Errors
/// Returns the problem if the completion does not pass the format check, or is not graded as
/// correct.
pub fn demonstrate(question: &Question, template: &str) -> Result<Option<Demonstration>, String> {
    if !template.contains("{answer}") {
        return Err("the template has no {answer}".to_owned());
    }
    let is_correct = |gold: &String| grade(&format!("<answer>{gold}</answer>"), question);
    let Some(gold) = question.golds.iter().find(|gold| is_correct(gold)).or(question.golds.first())
    else {
        return Ok(None);
    };
    let mut completion = String::with_capacity(template.len() + gold.len());
    // One pass: a question may contain “{answer}”.
    let mut rest = template;
    while let Some(index) = rest.find('{') {
        completion.push_str(&rest[..index]);
        rest = &rest[index..];
        if let Some(after) = rest.strip_prefix("{question}") {
            completion.push_str(question.question.trim());
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{answer}") {
            completion.push_str(gold.trim());
            rest = after;
        } else {
            completion.push('{');
            rest = &rest[1..];
        }
    }
    completion.push_str(rest);
    if format_reward(&completion, Compatibility::Paper) < 0.0 {
        return Err(format!(
            "the completion {completion:?} does not pass the format check: \
             <think>at least 30 characters</think><answer>…</answer>"
        ));
    }
    if !grade(&completion, question) {
        return Err(format!("the answer of the completion {completion:?} is not a gold"));
    }
    Ok(Some(Demonstration { question: question.question.clone(), completion }))
}

/// True if the judge grades the completion as correct.
fn grade(completion: &str, question: &Question) -> bool {
    AnswerRule::default().grade(completion, &question.golds) == Label::Good
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str, golds: &[&str]) -> Question {
        let golds = golds.iter().map(|gold| (*gold).to_owned()).collect();
        Question { question: text.into(), golds, ..Question::default() }
    }

    #[test]
    fn demonstration_has_format_and_gold() {
        let asked = question("{answer}?", &["A;B", "C"]);
        let made = demonstrate(&asked, DEMONSTRATION_TEMPLATE).unwrap().unwrap();
        assert_eq!(
            made.completion,
            "<think>The question is: {answer}? The answer to this question is A;B.</think>\
             <answer>A;B</answer>"
        );
        let short = demonstrate(&question("", &["A+"]), DEMONSTRATION_TEMPLATE).unwrap().unwrap();
        assert!(short.completion.ends_with("<answer>A+</answer>"));
        assert_eq!(demonstrate(&question("q", &[]), DEMONSTRATION_TEMPLATE), Ok(None));
    }

    #[test]
    fn unusable_template_is_refused() {
        let asked = question("Who?", &["Homer"]);
        for (template, problem) in [
            ("<think>x</think><answer>x</answer>", "has no {answer}"),
            ("<think>short</think><answer>{answer}</answer>", "does not pass the format check"),
            (
                "<think>{answer} is the answer to the question.</think><answer>Virgil</answer>",
                "is not a gold",
            ),
        ] {
            let error = demonstrate(&asked, template).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
