//! A trainer's text of prompt and completion → the question and the completion. This inverts chat
//! templates: it finds the headers of turns, and removes special tokens.
//!
//! The headers are those of the common model families: ChatML (Qwen, OLMo), Llama 2 and 3, Mistral,
//! Gemma, Phi and Tulu, DeepSeek.

use std::sync::LazyLock;

use regex::Regex;

/// A special token of any family.
const SPECIAL: &str = concat!(
    r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>]{1,60}｜>|</?s>|<(?:pad|unk|bos|eos)>",
    r"|<(?:start|end)_of_turn>|\[/?INST\]"
);

/// The header of the model's turn.
const ASSISTANT: &str = concat!(
    r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n",
    r"|<start_of_turn>model\n|<\|assistant\|>\n?|<｜Assistant｜>|\[/INST\]"
);

/// The header of a user's turn.
const USER: &str = concat!(
    r"<\|im_start\|>user\n|<\|start_header_id\|>user<\|end_header_id\|>\n\n",
    r"|<start_of_turn>user\n|<\|user\|>\n?|<｜User｜>|\[INST\]"
);

static SPECIALS: LazyLock<Regex> = LazyLock::new(|| compile(SPECIAL));
static LEADING: LazyLock<Regex> = LazyLock::new(|| compile(&format!(r"^(?:\s|{SPECIAL})+")));
static ASSISTANTS: LazyLock<Regex> = LazyLock::new(|| compile(ASSISTANT));
static USERS: LazyLock<Regex> =
    LazyLock::new(|| compile(&format!(r"(?s)(?:{USER})\s*(.*?)\s*(?:{SPECIAL}|\z)")));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns here are regular expressions")
}

/// Returns the completion in a text that starts with its prompt, without special tokens.
///
/// Returns `None` if the text neither starts with the prompt nor has a header of the model's turn.
#[must_use]
pub fn response(text: &str, prompt: Option<&str>) -> Option<String> {
    // A prompt that was cut at its start is not a prefix; the last header then ends the prompt.
    let completion =
        prompt.and_then(|prompt| strip_prompt(text, prompt)).or_else(|| after_last_header(text))?;
    Some(without_special_tokens(completion))
}

fn strip_prompt<'t>(text: &'t str, prompt: &str) -> Option<&'t str> {
    if let Some(completion) = text.strip_prefix(prompt) {
        return Some(completion);
    }
    // A tokenizer may have added a token at the start of either.
    let bare_prompt = without_leading_tokens(prompt);
    if bare_prompt.is_empty() {
        return None;
    }
    without_leading_tokens(text).strip_prefix(bare_prompt)
}

fn without_leading_tokens(text: &str) -> &str {
    match LEADING.find(text) {
        Some(leading) => &text[leading.end()..],
        None => text,
    }
}

fn after_last_header(text: &str) -> Option<&str> {
    let header = ASSISTANTS.find_iter(text).last()?;
    Some(&text[header.end()..])
}

/// Returns the last turn of the user in a prompt, or all of a prompt without turns.
#[must_use]
pub fn question(prompt: &str) -> String {
    match USERS.captures_iter(prompt).last() {
        Some(turn) => turn[1].to_owned(),
        None => without_special_tokens(prompt).trim().to_owned(),
    }
}

fn without_special_tokens(text: &str) -> String {
    SPECIALS.replace_all(text, "").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompt and stop token of each family.
    const FAMILIES: [(&str, &str); 7] = [
        (
            "<|im_start|>system\nS.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n",
            "<|im_end|>",
        ),
        (
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|eot_id|>",
        ),
        ("<s>[INST] Who? [/INST]", "</s>"),
        ("<bos><start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"),
        ("<|user|>\nWho?\n<|assistant|>\n", "<|endoftext|>"),
        ("<｜begin▁of▁sentence｜><｜User｜>Who?<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ("Who?", ""),
    ];
    const COMPLETION: &str = "<think>A < b | c > d.</think>\n<answer>Ada</answer>";

    #[test]
    fn response_is_text_after_prompt() {
        for (prompt, end) in FAMILIES {
            let text = format!("{prompt}{COMPLETION}{end}");
            assert_eq!(response(&text, Some(prompt)).as_deref(), Some(COMPLETION), "{text}");
            assert_eq!(question(prompt), "Who?");
        }
    }

    #[test]
    fn leading_bos_token_is_ignored() {
        let (prompt, end) = FAMILIES[0];
        let text = format!("<s> {prompt}{COMPLETION}{end}");
        assert_eq!(response(&text, Some(prompt)).as_deref(), Some(COMPLETION));
        let (prompt, end) = FAMILIES[1];
        let text = format!("{prompt}{COMPLETION}{end}");
        assert_eq!(
            response(&text, Some(&format!("<|begin_of_text|>{prompt}"))).as_deref(),
            Some(COMPLETION)
        );
    }

    #[test]
    fn truncated_prompt_ends_at_last_header() {
        for (prompt, end) in &FAMILIES[..6] {
            let cut = prompt.char_indices().nth(5).unwrap().0;
            let text = format!("{}{COMPLETION}{end}", &prompt[cut..]);
            assert_eq!(response(&text, Some(prompt)).as_deref(), Some(COMPLETION), "{text}");
            assert_eq!(response(&text, None).as_deref(), Some(COMPLETION), "{text}");
        }
        assert_eq!(response("o?Ada", Some("Who?")), None, "the start of the answer is unknown");
    }

    #[test]
    fn last_user_turn_is_question() {
        let prompt = "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n<|im_start|>user\nC?\nD?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(question(prompt), "C?\nD?");
        assert_eq!(response(&format!("{prompt}E."), Some(prompt)).as_deref(), Some("E."));
    }
}
