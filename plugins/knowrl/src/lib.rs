//! Knowrl: KnowRL's reward (Ren et al. 2025) for whole completions: r_format + r_correct + r_fact.
//! It is the whole reward: give it as the judge, with `reward.lambda_corver = 0` and
//! `reward.lambda_format = 0`.
use corver_sdk::prelude::*;
use corver_sdk::{
    LIST_STATEMENTS, Variant, at_least_one, between_tags, has_word, listed, probability,
};

settings! {
    /// Pays format, a right answer, and reasoning whose facts are supported.
    pub struct KnowRl {
        /// `paper`: the three rewards add up. `upstream`: facts are paid where the answer is wrong
        /// only, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// A fact is supported if it follows from one of its passages with at least this
        /// probability.
        pub threshold: f64 = 0.3,
        /// Passages that are searched for each fact.
        pub passages: u32 = 5,
        /// So many facts, and fewer, are paid less than their share: by exp(1 − gamma / facts).
        pub gamma: f64 = 10.0,
        /// Facts that are verified, the first ones.
        pub facts: u32 = 100,
        /// What the chat model is told before question, golds and answer.
        pub judge_prompt: String = JUDGE.to_owned(),
        /// What the chat model is told before a text whose facts it is to list.
        pub facts_prompt: String = LIST_STATEMENTS.to_owned(),
    }
}

const JUDGE: &str = "Grade the answer to the question below. Any of the gold answers is right, in whatever words; an answer that \
contradicts them is not. Reply with one letter: A if the answer is correct, B if it is incorrect, C if no answer is attempted.";

impl ResponseRule for KnowRl {
    const ASKS: &'static [Verifier] = &[Verifier::Chat, Verifier::Nli, Verifier::Passages];

    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Graded {
        let format = if keeps_format(&completion.text) { 1.0 } else { -1.0 };
        let answer = between_tags(&completion.text, "answer")
            .map(str::trim)
            .filter(|answer| !answer.is_empty());
        let judged = answer
            .filter(|_| !completion.golds.is_empty())
            .map(|answer| self.ask_judge(completion, answer));
        let mut replies =
            corpus.chats([self.ask_facts(completion)].into_iter().chain(judged))?.into_iter();
        let listed = replies.next().and_then(|reply| listed(&reply));
        let (correct, label) = match (answer, replies.next()) {
            (None, _) => (-1.0, "NO_ANSWER"),
            (Some(_), None) => (0.0, "NO_GOLD"),
            (Some(_), Some(reply)) => read_judge(&reply),
        };
        let shown = format!("format {format:+}, correct {correct:+}");
        if self.variant == Variant::Upstream && correct != -1.0 {
            return grade(format + correct, label).note(&shown);
        }
        let Some(facts) = &listed else {
            return grade(format + correct, label)
                .note(&format!("{shown}, no list of facts could be read"));
        };
        let facts = &facts[..facts.len().min(self.facts as usize)];
        let supported = self.supported(facts, completion, corpus)?;
        let fact = self.fact_reward(supported, facts.len());
        grade(format + correct + fact, label)
            .note(&format!("{shown}, {supported} of {} facts {fact:+.3}", facts.len()))
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
    fn ask_judge(&self, completion: &Completion, answer: &str) -> Prompt {
        let golds = completion.golds.iter().map(|gold| ("gold", gold.as_str()));
        let fields = [("question", completion.question.as_str())]
            .into_iter()
            .chain(golds)
            .chain([("answer", answer)]);
        Prompt {
            max_tokens: 4096,
            ..Prompt::tagged(&self.judge_prompt, &fields.collect::<Vec<_>>())
        }
    }

    fn ask_facts(&self, completion: &Completion) -> Prompt {
        let text = between_tags(&completion.text, "think").unwrap_or(&completion.text).trim();
        let fields = [("question", completion.question.as_str()), ("text", text)];
        Prompt { max_tokens: 4096, ..Prompt::tagged(&self.facts_prompt, &fields) }
    }

    /// How many facts follow from a passage of the document with the completion's title; from one
    /// of any document without a title.
    fn supported(
        &self,
        facts: &[String],
        completion: &Completion,
        corpus: &Corpus,
    ) -> Result<usize, corver_sdk::Ask> {
        let title = completion.title.as_ref().filter(|title| !title.trim().is_empty());
        let search = |fact: &String| {
            let query = title.map_or(fact.clone(), |title| format!("{title} {fact}"));
            Search { title: title.cloned(), query, k: self.passages }
        };
        let found = corpus.passages(facts.iter().map(search))?;
        let pairs = facts.iter().zip(&found).flat_map(|(fact, passages)| {
            passages.iter().map(move |passage| Pair::new(&passage.text, fact))
        });
        let mut answers =
            corpus.entailments(pairs)?.into_iter().map(|answer| f64::from(answer.entail));
        let best = found.iter().map(|passages| {
            answers.by_ref().take(passages.len()).fold(f64::NEG_INFINITY, f64::max)
        });
        Ok(best.filter(|&best| best >= self.threshold).count())
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

/// Whether think and answer block are all there is, neither is empty, and neither holds a further
/// `<think>` or `<answer>`. A first `<think>` may be missing. As the published pattern, which does
/// not look for those at the first character of a block.
fn keeps_format(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let blocks = || {
        let inside = text.strip_prefix("<think>").unwrap_or(text).strip_suffix("</answer>")?;
        let (think, answer) = split_after_first(inside, "<answer>")?;
        Some((think.trim_end().strip_suffix("</think>")?, answer))
    };
    let is_plain = |block: &str| {
        let block = block.trim();
        !block.is_empty()
            && ["<think>", "<answer>"].iter().all(|tag| split_after_first(block, tag).is_none())
    };
    blocks().is_some_and(|(think, answer)| is_plain(think) && is_plain(answer))
}

/// Cuts a text at a tag that stands behind its first character.
fn split_after_first<'a>(text: &'a str, tag: &str) -> Option<(&'a str, &'a str)> {
    let text = text.trim_start();
    let first = text.chars().next()?.len_utf8();
    let start = first + text[first..].find(tag)?;
    Some((&text[..start], &text[start + tag.len()..]))
}

/// What the judge's reply is worth: its answer block decides, if it has one that can be read. Where
/// a reply has several of the words, the first of CORRECT, INCORRECT and NOT ATTEMPTED does, and an
/// A is CORRECT, be it an article; as in the published code.
fn read_judge(reply: &str) -> (f64, &'static str) {
    let reply = reply.to_uppercase();
    let read = |text: &str| {
        let has = |words: &[&str]| words.iter().any(|word| has_word(text, word));
        if has(&["CORRECT", "A"]) {
            Some((2.0, "GOOD"))
        } else if has(&["INCORRECT", "B"]) {
            Some((-1.0, "BAD"))
        } else if has(&["NOT_ATTEMPTED", "NOT ATTEMPTED", "C"]) {
            Some((1.0, "NOT_ATTEMPTED"))
        } else {
            None
        }
    };
    between_tags(&reply, "ANSWER")
        .and_then(read)
        .or_else(|| read(&reply))
        .unwrap_or((0.0, "UNREADABLE"))
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
        let read = |reply: &str| read_judge(reply).0;
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
        for kept in [
            TEXT,
            "Rome is old.</think>\n<answer>Rome</answer>\n",
            "<think> a </think> <answer> b </answer>",
            // A second <think> is not seen at the beginning.
            "\n<think>a</think><answer>b</answer>",
            "<think><think>a</think><answer><answer>b</answer>",
        ] {
            assert!(keeps_format(kept), "{kept:?}");
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
            assert!(!keeps_format(broken), "{broken:?}");
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
