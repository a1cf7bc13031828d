//! Knowrl: KnowRL's reward (Ren et al. 2025) for whole completions: r_format + r_correct + r_fact.
//! Use it alone, as the answer judge, with `reward.lambda_corver = 0` and `reward.lambda_format = 0`.
use corver_sdk::chat::{LIST_CLAIMS, has_word, parse_bullets};
use corver_sdk::prelude::*;
use corver_sdk::tags::between_tags;
use corver_sdk::{Variant, at_least_one, probability};

settings! {
    /// Rewards the format, a right answer, and reasoning whose facts are supported.
    pub struct KnowRl {
        /// `paper`: the three rewards add up. `upstream`: facts are rewarded only if the answer is
        /// wrong, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// A fact is supported if it follows from one of its passages with at least this
        /// probability.
        pub threshold: f64 = 0.3,
        /// Passages per fact.
        pub passages: u32 = 5,
        /// With this number of facts or fewer, the fact reward is multiplied by exp(1 − gamma / facts).
        pub gamma: f64 = 10.0,
        /// Greatest number of facts; the others are ignored.
        pub facts: u32 = 100,
        /// Instructions to the chat model for judging the answer.
        pub judge_prompt: String = JUDGE.to_owned(),
        /// Instructions to the chat model for listing the facts of a text.
        pub facts_prompt: String = LIST_CLAIMS.to_owned(),
    }
}

const JUDGE: &str = "Grade the answer to the question below. Any of the gold answers is right, in whatever words; an answer that \
contradicts them is not. Reply with one letter: A if the answer is correct, B if it is incorrect, C if no answer is attempted.";

impl ResponseRule for KnowRl {
    const REQUIRES: &'static [Capability] =
        &[Capability::Chat, Capability::Nli, Capability::Passages];

    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Result<Grade, Pending> {
        let format = if has_format(&completion.text) { 1.0 } else { -1.0 };
        let answer = between_tags(&completion.text, "answer")
            .map(str::trim)
            .filter(|answer| !answer.is_empty());
        let mut prompts = vec![self.build_facts_prompt(completion)];
        if let Some(answer) = answer
            && !completion.golds.is_empty()
        {
            prompts.push(self.build_judge_prompt(completion, answer));
        }
        let replies = corpus.chats(prompts)?;
        let (correct, label) = match (answer, replies.get(1)) {
            (None, _) => (-1.0, "NO_ANSWER"),
            (Some(_), None) => (0.0, "NO_GOLD"),
            (Some(_), Some(reply)) => parse_judge_reply(reply),
        };
        let note = format!("format {format:+}, correct {correct:+}");
        if self.variant == Variant::Upstream && correct != -1.0 {
            return Ok(Grade::new(format + correct, label).note(&note));
        }
        let Some(mut facts) = parse_bullets(&replies[0]) else {
            let note = format!("{note}, no list of facts could be read");
            return Ok(Grade::new(format + correct, label).note(&note));
        };
        facts.truncate(self.facts as usize);
        let supported = self.count_supported(&facts, completion, corpus)?;
        let fact = self.fact_reward(supported, facts.len());
        let note = format!("{note}, {supported} of {} facts {fact:+.3}", facts.len());
        Ok(Grade::new(format + correct + fact, label).note(&note))
    }

    fn validate(&self) -> Result<(), String> {
        probability("threshold", self.threshold)?;
        at_least_one("passages", self.passages.into())?;
        at_least_one("facts", self.facts.into())?;
        if self.gamma >= 0.0 {
            Ok(())
        } else {
            Err(format!("`gamma` must be 0 or above; got {}", self.gamma))
        }
    }
}

impl KnowRl {
    fn build_judge_prompt(&self, completion: &Completion, answer: &str) -> ChatPrompt {
        let mut fields = vec![("question", completion.question.as_str())];
        fields.extend(completion.golds.iter().map(|gold| ("gold", gold.as_str())));
        fields.push(("answer", answer));
        ChatPrompt { max_tokens: 4096, ..ChatPrompt::tagged(&self.judge_prompt, &fields) }
    }

    fn build_facts_prompt(&self, completion: &Completion) -> ChatPrompt {
        let text = between_tags(&completion.text, "think").unwrap_or(&completion.text).trim();
        let fields = [("question", completion.question.as_str()), ("text", text)];
        ChatPrompt { max_tokens: 4096, ..ChatPrompt::tagged(&self.facts_prompt, &fields) }
    }

    /// Returns the number of facts that follow from a passage: of the document with the completion's
    /// title or, without a title, of any document.
    fn count_supported(
        &self,
        facts: &[String],
        completion: &Completion,
        corpus: &Corpus,
    ) -> Result<usize, Pending> {
        let title = completion.title.as_ref().filter(|title| !title.trim().is_empty());
        let searches = facts.iter().map(|fact| Search {
            title: title.cloned(),
            query: title.map_or(fact.clone(), |title| format!("{title} {fact}")),
            k: self.passages,
        });
        let found = corpus.passages(searches)?;
        let mut pairs = Vec::new();
        for (fact, passages) in facts.iter().zip(&found) {
            pairs.extend(passages.iter().map(|passage| NliPair::new(&passage.text, fact)));
        }
        let mut entailments = corpus.entailments(pairs)?.into_iter();
        let mut supported = 0;
        for passages in &found {
            // All of a fact's entailments are consumed, whether or not the first one suffices.
            let own = entailments.by_ref().take(passages.len());
            let best = own.map(|nli| f64::from(nli.entail)).fold(f64::NEG_INFINITY, f64::max);
            if best >= self.threshold {
                supported += 1;
            }
        }
        Ok(supported)
    }

    fn fact_reward(&self, supported: usize, facts: usize) -> f64 {
        if facts == 0 {
            return 0.0;
        }
        let (supported, facts) = (supported as f64, facts as f64);
        let penalty = if facts > self.gamma { 1.0 } else { (1.0 - self.gamma / facts).exp() };
        supported / facts * penalty
    }
}

/// Returns true if the text is a think and an answer block, neither is empty, and neither contains a
/// further `<think>` or `<answer>`. The first `<think>` may be missing. As in the published pattern, a
/// tag at the first character of a block is not seen.
fn has_format(text: &str) -> bool {
    let Some((think, answer)) = split_blocks(text) else { return false };
    is_plain(think) && is_plain(answer)
}

fn split_blocks(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let inside = text.strip_prefix("<think>").unwrap_or(text).strip_suffix("</answer>")?;
    let (think, answer) = split_at_later_tag(inside, "<answer>")?;
    Some((think.trim_end().strip_suffix("</think>")?, answer))
}

fn is_plain(block: &str) -> bool {
    let block = block.trim();
    !block.is_empty()
        && split_at_later_tag(block, "<think>").is_none()
        && split_at_later_tag(block, "<answer>").is_none()
}

/// Splits a text at a tag after its first character.
fn split_at_later_tag<'a>(text: &'a str, tag: &str) -> Option<(&'a str, &'a str)> {
    let text = text.trim_start();
    let first = text.chars().next()?.len_utf8();
    let start = first + text[first..].find(tag)?;
    Some((&text[..start], &text[start + tag.len()..]))
}

/// Returns the reward and label of the judge's reply. Its answer block decides if it can be read,
/// else the whole reply does. As in the published code, the first of CORRECT, INCORRECT and NOT
/// ATTEMPTED decides, and an A is CORRECT even as an article.
fn parse_judge_reply(reply: &str) -> (f64, &'static str) {
    let reply = reply.to_uppercase();
    between_tags(&reply, "ANSWER")
        .and_then(parse_judge_words)
        .or_else(|| parse_judge_words(&reply))
        .unwrap_or((0.0, "UNREADABLE"))
}

fn parse_judge_words(text: &str) -> Option<(f64, &'static str)> {
    let has_any = |words: &[&str]| words.iter().any(|word| has_word(text, word));
    if has_any(&["CORRECT", "A"]) {
        Some((2.0, "GOOD"))
    } else if has_any(&["INCORRECT", "B"]) {
        Some((-1.0, "BAD"))
    } else if has_any(&["NOT_ATTEMPTED", "NOT ATTEMPTED", "C"]) {
        Some((1.0, "NOT_ATTEMPTED"))
    } else {
        None
    }
}

corver_sdk::export_response_rule!(KnowRl);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{FakeCorpus, check_responses_with, response, run_response};

    const TEXT: &str = "<think>Rome is old. It is in Italy.</think><answer>Rome</answer>";
    const FACTS: &str = "- Rome is old.\n- Rome is in Italy.";

    /// Two facts, one of which is supported.
    fn corpus(judge: &str) -> FakeCorpus {
        FakeCorpus::default()
            .replies("<gold>", judge)
            .replies("<text>", FACTS)
            .finds(Some("Rome"), "Rome Rome is old.", &["Founded in 753 BC.", "On seven hills."])
            .finds(Some("Rome"), "Rome Rome is in Italy.", &["The capital of Italy."])
            .entails("Founded in 753 BC.", "Rome is old.", 0.1)
            .entails("On seven hills.", "Rome is old.", 0.29)
            .entails("The capital of Italy.", "Rome is in Italy.", 0.3)
    }

    fn graded(rule: &KnowRl, text: &str, judge: &str) -> (f32, String) {
        let mut completion = response("Which city?", &["Rome", "Roma"], text);
        completion.title = Some("Rome".to_owned());
        let grade = run_response(rule, &completion, &corpus(judge));
        (grade.reward, grade.label)
    }

    fn upstream() -> KnowRl {
        KnowRl { variant: Variant::Upstream, ..KnowRl::default() }
    }

    /// 1 of 2 facts, with exp(1 − 10/2) = exp(−4) = 0.018316: 0.009158.
    const HALF_OF_TWO: f32 = 0.009_157_82;

    fn close(got: (f32, String), reward: f32, label: &str) {
        assert!((got.0 - reward).abs() < 1e-6 && got.1 == label, "{got:?}, not {reward} {label}");
    }

    #[test]
    fn paper_variant_sums_format_answer_and_fact_rewards() {
        for (judge, correct, label) in [
            ("A", 2.0, "GOOD"),
            ("B", -1.0, "BAD"),
            ("C", 1.0, "NOT_ATTEMPTED"),
            ("?", 0.0, "UNREADABLE"),
        ] {
            close(graded(&KnowRl::default(), TEXT, judge), 1.0 + correct + HALF_OF_TWO, label);
            // The format is broken: −1.
            close(
                graded(&KnowRl::default(), &format!("So: {TEXT}."), judge),
                -1.0 + correct + HALF_OF_TWO,
                label,
            );
        }
    }

    #[test]
    fn upstream_variant_adds_facts_to_wrong_answers_only() {
        close(graded(&upstream(), TEXT, "A"), 1.0 + 2.0, "GOOD");
        close(graded(&upstream(), TEXT, "C"), 1.0 + 1.0, "NOT_ATTEMPTED");
        close(graded(&upstream(), TEXT, "?"), 1.0, "UNREADABLE");
        close(graded(&upstream(), TEXT, "B"), 1.0 - 1.0 + HALF_OF_TWO, "BAD");
        // Without an answer: −1 for the format, −1 for the answer; the facts are those of the think
        // block.
        close(
            graded(&upstream(), "<think>Rome is old.</think>", "A"),
            -1.0 - 1.0 + HALF_OF_TWO,
            "NO_ANSWER",
        );
    }

    #[test]
    fn empty_answer_is_wrong_without_judge_call() {
        for text in ["<think>x</think><answer> </answer>", "<think>x</think><answer>Rome", "x"] {
            close(graded(&KnowRl::default(), text, "A"), -1.0 - 1.0 + HALF_OF_TWO, "NO_ANSWER");
        }
    }

    #[test]
    fn answer_is_not_judged_without_golds() {
        let corpus = FakeCorpus::default().replies("<text>", "NONE");
        let grade = run_response(&KnowRl::default(), &response("Which city?", &[], TEXT), &corpus);
        assert_eq!((grade.reward, grade.label.as_str()), (1.0, "NO_GOLD"));
    }

    #[test]
    fn missing_title_searches_all_documents() {
        let corpus = FakeCorpus::default()
            .replies("<gold>", "B")
            .replies("<text>", "- Rome is old.")
            .finds(None, "Rome is old.", &["Rome is ancient."])
            .entails("Rome is ancient.", "Rome is old.", 0.9);
        let grade =
            run_response(&KnowRl::default(), &response("Which city?", &["Rome"], TEXT), &corpus);
        // 1 − 1 + 1/1 · exp(1 − 10/1) = exp(−9) = 0.000123.
        assert!((grade.reward - 0.000_123_41).abs() < 1e-7, "{grade:?}");
        assert_eq!(grade.note.as_deref(), Some("format +1, correct -1, 1 of 1 facts +0.000"));
    }

    #[test]
    fn fact_reward_is_discounted_for_few_facts() {
        let reward = |supported, facts| KnowRl::default().fact_reward(supported, facts);
        assert_eq!(reward(0, 0), 0.0);
        // At 10 facts the factor is exp(0) = 1, and from 11 on it is 1; at 5 it is exp(1 − 2) =
        // 0.367879.
        assert_eq!((reward(5, 10), reward(11, 11), reward(11, 44)), (0.5, 1.0, 0.25));
        assert!((reward(5, 5) - 0.367_879).abs() < 1e-6);
    }

    #[test]
    fn facts_beyond_limit_are_not_verified() {
        let rule: KnowRl = configured_response(r#"{"facts": 1}"#).unwrap();
        // "Rome is old." alone, unsupported: 1 + 2 + 0.
        close(graded(&rule, TEXT, "A"), 3.0, "GOOD");
        // With a threshold of 0.29: 1 + 2 + exp(−9).
        let rule: KnowRl = configured_response(r#"{"facts": 1, "threshold": 0.28}"#).unwrap();
        close(graded(&rule, TEXT, "A"), 3.0 + 0.000_123_41, "GOOD");
    }

    #[test]
    fn judge_reply_parsing_follows_reference_order() {
        let read = |reply: &str| parse_judge_reply(reply).0;
        for (reply, score) in [
            ("correct", 2.0),
            ("INCORRECT", -1.0),
            ("not_attempted", 1.0),
            ("Not attempted.", 1.0),
            ("", 0.0),
            ("Abc", 0.0),
            // The article.
            ("Incorrect: it is a city in Peru.", 2.0),
            ("Incorrect: this city lies in Peru.", -1.0),
            // The answer block goes first, where it says something.
            ("It is a city.<answer>B</answer>", -1.0),
            ("It is B.<answer>?</answer>", -1.0),
        ] {
            assert_eq!(read(reply), score, "{reply:?}");
        }
    }

    #[test]
    fn format_check_follows_reference_pattern() {
        for intact in [
            TEXT,
            "Rome is old.</think>\n<answer>Rome</answer>\n",
            "<think> a </think> <answer> b </answer>",
            // A second <think> is not seen at the beginning.
            "\n<think>a</think><answer>b</answer>",
            "<think><think>a</think><answer><answer>b</answer>",
        ] {
            assert!(has_format(intact), "{intact:?}");
        }
        for broken in [
            "",
            "a",
            "</answer>",
            "<think></think><answer>b</answer>",
            "<think>a</think><answer> </answer>",
            "<think>a</think><answer>b</answer>\n\n",
            "<think>a</think>b<answer>c</answer>",
            "<think>a<think>b</think><answer>c</answer>",
            "<think>a</think><answer>b<answer>c</answer>",
            "<think>a<answer>b</answer>",
        ] {
            assert!(!has_format(broken), "{broken:?}");
        }
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let refused = |json: &str| configured_response::<KnowRl>(json).unwrap_err();
        assert!(refused(r#"{"threshold": 2}"#).contains("`threshold`"));
        assert!(refused(r#"{"passages": 0}"#).contains("`passages`"));
        assert!(refused(r#"{"facts": 0}"#).contains("`facts`"));
        assert!(refused(r#"{"gamma": -1}"#).contains("`gamma`"));
    }

    #[test]
    fn grades_stay_in_range_for_any_completion() {
        let many =
            (0..300).map(|number| format!("- Rome is {number} years old.\n")).collect::<String>();
        let replies = ["A", "B", "C", "<ANSWER>", "- Rome is old.", &many];
        check_responses_with(&KnowRl::default(), -2.0..=4.0, &replies);
        check_responses_with(&upstream(), -2.0..=3.0, &replies);
    }
}
