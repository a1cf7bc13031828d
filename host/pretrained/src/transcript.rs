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

/// Markers of the turns of a model family, as patterns without groups.
struct TurnMarkers {
    /// Header of a user's turn, with the system block in it.
    user: &'static str,
    /// End of a user's turn.
    user_end: &'static str,
    /// Header of the model's turn.
    assistant: &'static str,
}

static FAMILY_MARKERS: [TurnMarkers; 6] = [
    // ChatML.
    TurnMarkers {
        user: r"<\|im_start\|>user\n",
        user_end: r"<\|im_end\|>",
        assistant: r"<\|im_start\|>assistant\n",
    },
    // Llama 3.
    TurnMarkers {
        user: r"<\|start_header_id\|>user<\|end_header_id\|>\n\n",
        user_end: r"<\|eot_id\|>|<\|start_header_id\|>",
        assistant: r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n",
    },
    // Gemma.
    TurnMarkers {
        user: r"<start_of_turn>user\n",
        user_end: r"<end_of_turn>",
        assistant: r"<start_of_turn>model\n",
    },
    // Phi, Tulu and Zephyr; Tulu has no end but the next header.
    TurnMarkers {
        user: r"<\|user\|>\n?",
        user_end: r"(?:</s>\s*)?<\|(?:end|assistant|user|system)\|>",
        assistant: r"<\|assistant\|>\n?",
    },
    // DeepSeek.
    TurnMarkers {
        user: r"<｜User｜>",
        user_end: r"<｜Assistant｜>|<｜end▁of▁sentence｜>",
        assistant: r"<｜Assistant｜>",
    },
    // Llama 2 and Mistral.
    TurnMarkers {
        user: r"\[INST\](?:\s*(?s:<<SYS>>.*?<</SYS>>))?",
        user_end: r"\[/INST\]",
        assistant: r"\[/INST\]",
    },
];

static SPECIALS: LazyLock<Regex> = LazyLock::new(|| compile(SPECIAL));
static LEADING: LazyLock<Regex> = LazyLock::new(|| compile(&format!(r"^(?:\s|{SPECIAL})+")));
static ASSISTANTS: LazyLock<Regex> = LazyLock::new(|| headers(|markers| markers.assistant));
static USERS: LazyLock<Regex> = LazyLock::new(|| headers(|markers| markers.user));
static USER_TURNS: LazyLock<Vec<Regex>> = LazyLock::new(user_turns);

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns here are regular expressions")
}

/// Returns the pattern of a header, with a group for each family.
fn headers(header: impl Fn(&TurnMarkers) -> &'static str) -> Regex {
    let mut groups = Vec::new();
    for markers in &FAMILY_MARKERS {
        groups.push(format!("({})", header(markers)));
    }
    compile(&groups.join("|"))
}

/// Returns each family's pattern of a user's turn, with a group for its text.
fn user_turns() -> Vec<Regex> {
    let mut turns = Vec::new();
    for TurnMarkers { user, user_end, .. } in &FAMILY_MARKERS {
        turns.push(compile(&format!(r"(?s){user}\s*(.*?)\s*(?:{user_end}|\z)")));
    }
    turns
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

/// Returns the last turn of the user in a prompt, or all of a prompt without turns. Other special
/// tokens than the end of the turn are part of its text.
#[must_use]
pub fn question(prompt: &str) -> String {
    match last_user_turn(prompt) {
        Some(turn) => turn.to_owned(),
        None => without_special_tokens(prompt).trim().to_owned(),
    }
}

fn last_user_turn(prompt: &str) -> Option<&str> {
    let turn = USER_TURNS[family_of(prompt)?].captures_iter(prompt).last()?;
    turn.get(1).map(|text| text.as_str())
}

/// Returns the index of a prompt's family: that of the last header of the model's turn, where the
/// prompt ends, or else of the first header of a user's turn.
fn family_of(prompt: &str) -> Option<usize> {
    let assistant = ASSISTANTS.captures_iter(prompt).last();
    let header = assistant.or_else(|| USERS.captures(prompt))?;
    (0..FAMILY_MARKERS.len()).find(|family| header.get(family + 1).is_some())
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
    fn system_block_is_no_part_of_question() {
        let prompt = "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWho? [/INST]";
        assert_eq!(question(prompt), "Who?");
        assert_eq!(question(&format!("{prompt} Ada. </s><s>[INST] When? [/INST]")), "When?");
    }

    #[test]
    fn question_may_quote_special_tokens() {
        for (prompt, _) in &FAMILIES[..6] {
            let quoting = prompt.replace("Who?", "What does `<s>` do?");
            assert_eq!(question(&quoting), "What does `<s>` do?", "{quoting}");
        }
        let (prompt, _) = FAMILIES[0];
        let quoting = prompt.replace("S.", "Use [INST].").replace("Who?", "What is [/INST]?");
        assert_eq!(question(&quoting), "What is [/INST]?");
        assert_eq!(question("<|user|>\nWho?</s>\n<|assistant|>\n"), "Who?");
        assert_eq!(question("<|user|>\nWho?"), "Who?");
    }

    #[test]
    fn last_user_turn_is_question() {
        let prompt = "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n<|im_start|>user\nC?\nD?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(question(prompt), "C?\nD?");
        assert_eq!(response(&format!("{prompt}E."), Some(prompt)).as_deref(), Some("E."));
    }
}
