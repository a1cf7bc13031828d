//! A trainer's transcript → what was asked and what the model answered. Chat templates, read
//! backwards: where a model's turn begins in a text, and which marks in it are no words.
//!
//! The marks are those of the common families: ChatML (Qwen, OLMo), Llama 2 and 3, Mistral, Gemma,
//! Phi and Tulu, DeepSeek.

use std::sync::LazyLock;

use regex::Regex;

/// A special token of any family.
const SPECIAL: &str = r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>]{1,60}｜>|</?s>|<(?:pad|unk|bos|eos)>|<(?:start|end)_of_turn>|\[/?INST\]";

/// Where the model's turn begins.
const ASSISTANT: &str = r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|<start_of_turn>model\n|<\|assistant\|>\n?|<｜Assistant｜>|\[/INST\]";

/// Where a person's turn begins.
const USER: &str = r"<\|im_start\|>user\n|<\|start_header_id\|>user<\|end_header_id\|>\n\n|<start_of_turn>user\n|<\|user\|>\n?|<｜User｜>|\[INST\]";

static SPECIALS: LazyLock<Regex> = LazyLock::new(|| compiled(SPECIAL));
static LEADING: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"^(?:\s|{SPECIAL})+")));
static ASSISTANTS: LazyLock<Regex> = LazyLock::new(|| compiled(ASSISTANT));
static USERS: LazyLock<Regex> =
    LazyLock::new(|| compiled(&format!(r"(?s)(?:{USER})\s*(.*?)\s*(?:{SPECIAL}|\z)")));

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns here are regular expressions")
}

/// What a model answered, of a text that holds its prompt too; special tokens left out. `None`
/// where it cannot be told apart: the text does not begin with the prompt, and says nowhere that
/// the model's turn begins.
#[must_use]
pub fn response(whole: &str, prompt: Option<&str>) -> Option<String> {
    let behind_prompt = prompt.and_then(|prompt| {
        // A tokenizer may have put a token in front of either.
        let bare = |text| &text[LEADING.find(text).map_or(0, |leading| leading.end())..];
        whole
            .strip_prefix(prompt)
            .or_else(|| bare(whole).strip_prefix(bare(prompt)).filter(|_| !bare(prompt).is_empty()))
    });
    // A prompt that was cut on its left is no prefix.
    let behind_header = || ASSISTANTS.find_iter(whole).last().map(|header| &whole[header.end()..]);
    behind_prompt.or_else(behind_header).map(words)
}

/// What was asked: a prompt's last turn of a person, or all of a prompt without turns.
#[must_use]
pub fn question(prompt: &str) -> String {
    match USERS.captures_iter(prompt).last() {
        Some(turn) => turn[1].to_owned(),
        None => words(prompt).trim().to_owned(),
    }
}

fn words(text: &str) -> String {
    SPECIALS.replace_all(text, "").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompt, and what comes behind it, of each family.
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
    const SAID: &str = "<think>A < b | c > d.</think>\n<answer>Ada</answer>";

    #[test]
    fn response_is_text_after_prompt() {
        for (prompt, end) in FAMILIES {
            let whole = format!("{prompt}{SAID}{end}");
            assert_eq!(response(&whole, Some(prompt)).as_deref(), Some(SAID), "{whole}");
            assert_eq!(question(prompt), "Who?");
        }
    }

    #[test]
    fn leading_bos_token_is_ignored() {
        let (prompt, end) = FAMILIES[0];
        let whole = format!("<s> {prompt}{SAID}{end}");
        assert_eq!(response(&whole, Some(prompt)).as_deref(), Some(SAID));
        let (prompt, end) = FAMILIES[1];
        let whole = format!("{prompt}{SAID}{end}");
        assert_eq!(
            response(&whole, Some(&format!("<|begin_of_text|>{prompt}"))).as_deref(),
            Some(SAID)
        );
    }

    #[test]
    fn truncated_prompt_ends_at_last_header() {
        for (prompt, end) in &FAMILIES[..6] {
            let cut = prompt.char_indices().nth(5).unwrap().0;
            let whole = format!("{}{SAID}{end}", &prompt[cut..]);
            assert_eq!(response(&whole, Some(prompt)).as_deref(), Some(SAID), "{whole}");
            assert_eq!(response(&whole, None).as_deref(), Some(SAID), "{whole}");
        }
        assert_eq!(response("o?Ada", Some("Who?")), None, "nobody can say where the answer begins");
    }

    #[test]
    fn last_user_turn_is_question() {
        let prompt = "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n<|im_start|>user\nC?\nD?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(question(prompt), "C?\nD?");
        assert_eq!(response(&format!("{prompt}E."), Some(prompt)).as_deref(), Some("E."));
    }
}
