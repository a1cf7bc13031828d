//! Rlfh: RLFH's reward (Wen et al. 2024). A chat model lists the statements of a sentence, verifies
//! each against passages and says how much it helps; truth is paid where a statement ends,
//! information where the sentence does.
use corver_sdk::prelude::*;
use corver_sdk::schemars::JsonSchema;
use corver_sdk::serde::{Deserialize, Serialize};
use corver_sdk::{Ask, LIST_STATEMENTS, at_least_one, statements, subsequence_end};

settings! {
    /// Pays true and helpful statements, token by token.
    pub struct Rlfh {
        /// The published numbers: `readme`, the recipe that is recommended there; `code`, the
        /// defaults of the code; `training`, those of its training script.
        pub preset: Preset = Preset::Readme,
        /// In place of the preset's, the worth of Correct, Hedged correct, Vague, Hedged wrong and
        /// Wrong.
        pub truth: Option<[f64; 5]> = None,
        /// In place of the preset's, the worth of helpfulness 1, 2, 3, 4 and 5.
        pub information: Option<[f64; 5]> = None,
        /// Weight of truth.
        pub truth_weight: f64 = 1.0,
        /// Weight of information; `null` takes the preset's.
        pub info_weight: Option<f64> = None,
        /// The least that the information of a sentence counts, before `mu` is added.
        pub epsilon: f64 = -0.9,
        /// Added to the information of a sentence before the logarithm is taken; more than
        /// −`epsilon`.
        pub mu: f64 = 1.0,
        /// `token`: truth is paid where the statement ends. `sentence`: all is paid at the
        /// sentence's last token.
        pub granularity: Granularity = Granularity::Token,
        /// Passages that a statement is verified against.
        pub passages: u32 = 3,
        /// Words of a passage that the chat model is shown.
        pub words: u32 = 64,
        /// Statements of a sentence that are looked at, the first ones.
        pub statements: u32 = 20,
        /// How often a list of statements is asked for until it can be read.
        pub tries: u32 = 2,
        /// A sentence with one of these phrases, in whatever case, is passed over; so is a
        /// question.
        pub refusals: Vec<String> = REFUSALS.map(str::to_owned).to_vec(),
        /// What the chat model is told before a sentence whose statements it is to list.
        pub extract_prompt: String = LIST_STATEMENTS.to_owned(),
        /// What it is told before a statement and passages.
        pub verify_prompt: String = VERIFY.to_owned(),
        /// What it is told before a question and a statement.
        pub assess_prompt: String = ASSESS.to_owned(),
    }
}

/// A set of published numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "corver_sdk::serde", rename_all = "lowercase")]
#[schemars(crate = "corver_sdk::schemars")]
pub enum Preset {
    Readme,
    Code,
    Training,
}

/// Where truth is paid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "corver_sdk::serde", rename_all = "lowercase")]
#[schemars(crate = "corver_sdk::schemars")]
pub enum Granularity {
    Token,
    Sentence,
}

const REFUSALS: [&str; 11] = [
    "i'm sorry",
    "don't have any information",
    "do not have any information",
    "doesn't have any information",
    "does not have any information",
    "may be able to provide more",
    "have any additional information",
    "need more context to",
    "request for more context",
    "requests for more context",
    "it is not possible to",
];

const VERIFY: &str = "Hold the statement below against the passages. Reply with one word: Correct if they support it, Wrong if they \
contradict it, Vague if they do not settle it.";

const ASSESS: &str = "How much does the statement below help with the question? Reply with one number: 5 if it answers the question, 4 \
if the answer depends on it, 3 if it is a fact to the point, 2 if it only adds something, 1 if it is of no use.";

/// What a chat model says of one statement.
struct Assessed {
    /// 0 to 4, as in the setting `truth`.
    verdict: usize,
    /// 0 to 4, for 1 to 5.
    helpfulness: usize,
}

impl Preset {
    fn truth(self) -> [f64; 5] {
        match self {
            Self::Readme => [0.45, 0.35, -1.0, -1.5, -1.7],
            Self::Code => [1.0, 0.5, -1.0, -1.5, -2.0],
            Self::Training => [0.3, 0.1, -0.8, -0.9, -1.2],
        }
    }

    fn information(self) -> [f64; 5] {
        match self {
            Self::Readme => [-0.2, 0.1, 0.75, 1.0, 1.25],
            Self::Code | Self::Training => [-0.1, 1.0, 1.1, 1.2, 1.3],
        }
    }

    fn info_weight(self) -> f64 {
        if self == Self::Readme { 1.2 } else { 1.0 }
    }
}

impl Rlfh {
    fn score(&self, question: &str, sentence: &Sentence, corpus: &Corpus) -> Outcome {
        let text = sentence.text.as_str();
        let Some(last) = text.chars().count().checked_sub(1) else {
            return abstain("an empty sentence");
        };
        if self.is_passed_over(text) {
            return abstain("a question or a refusal");
        }
        let listed = statements(corpus, &self.extract_prompt, question, text, self.tries)?;
        let Some(mut listed) = listed else {
            return abstain("no list of its statements could be read");
        };
        listed.truncate(self.statements as usize);
        if listed.is_empty() {
            return abstain("no statement");
        }
        let assessed = self.assess(question, &listed, corpus)?;
        let ends = listed.iter().map(|statement| match self.granularity {
            Granularity::Token => end_of(statement, text).unwrap_or(last),
            Granularity::Sentence => last,
        });
        let truths = ends.zip(&assessed).map(|(end, one)| (end, self.truth(one)));
        let correct = assessed.iter().filter(|one| one.verdict < 2).count();
        points(truths.chain([(last, self.info(&assessed))]))
            .note(&format!("{correct} of {} correct", listed.len()))
    }

    fn is_passed_over(&self, text: &str) -> bool {
        let lower = text.to_lowercase().replace('’', "'");
        text.ends_with('?')
            || self.refusals.iter().any(|phrase| lower.contains(&phrase.to_lowercase()))
    }

    /// Passages of all statements in one round; verdicts and helpfulness in the next.
    fn assess(
        &self,
        question: &str,
        statements: &[String],
        corpus: &Corpus,
    ) -> Result<Vec<Assessed>, Ask> {
        let search =
            |statement: &String| Search { title: None, query: statement.clone(), k: self.passages };
        let found = corpus.passages(statements.iter().map(search))?;
        let short =
            |max_tokens, prompt| Prompt { temperature: 0.3, top_p: 0.3, max_tokens, ..prompt };
        let verify = statements.iter().zip(&found).map(|(statement, passages)| {
            let words = |text: &str| {
                text.split_whitespace().take(self.words as usize).collect::<Vec<_>>().join(" ")
            };
            let passages: Vec<String> =
                passages.iter().map(|passage| words(&passage.text)).collect();
            let passages = passages.iter().map(|passage| ("passage", passage.as_str()));
            let fields: Vec<(&str, &str)> =
                [("statement", statement.as_str())].into_iter().chain(passages).collect();
            short(32, Prompt::tagged(&self.verify_prompt, &fields))
        });
        let assess = statements.iter().map(|statement| {
            short(
                48,
                Prompt::tagged(
                    &self.assess_prompt,
                    &[("question", question), ("statement", statement)],
                ),
            )
        });
        let replies = corpus.chats(verify.chain(assess))?;
        let (verdicts, helpfulness) = replies.split_at(statements.len());
        let assessed = |(verdict, help): (&String, &String)| Assessed {
            verdict: read_verdict(verdict),
            helpfulness: read_helpfulness(help),
        };
        Ok(verdicts.iter().zip(helpfulness).map(assessed).collect())
    }

    /// w_t · V\[verdict\] · |I\[helpfulness\]|
    fn truth(&self, one: &Assessed) -> f64 {
        let worth = self.truth.unwrap_or(self.preset.truth())[one.verdict];
        self.truth_weight * worth * self.information(one).abs()
    }

    /// w_i · ln(max(ε, Σ I\[helpfulness\]) + μ)
    fn info(&self, statements: &[Assessed]) -> f64 {
        let sum: f64 = statements.iter().map(|one| self.information(one)).sum();
        self.info_weight.unwrap_or(self.preset.info_weight())
            * (sum.max(self.epsilon) + self.mu).ln()
    }

    fn information(&self, one: &Assessed) -> f64 {
        self.information.unwrap_or(self.preset.information())[one.helpfulness]
    }
}

/// The first of the words in the reply; Vague where there is none.
fn read_verdict(reply: &str) -> usize {
    let words: Vec<String> = words(reply);
    let verdict = |(at, word): (usize, &String)| {
        let is_hedged = at > 0 && words[at - 1] == "hedged";
        match (word.as_str(), is_hedged) {
            ("correct", false) => Some(0),
            ("correct", true) => Some(1),
            ("vague", _) => Some(2),
            ("wrong", true) => Some(3),
            ("wrong", false) => Some(4),
            _ => None,
        }
    };
    words.iter().enumerate().find_map(verdict).unwrap_or(2)
}

/// The first number from 1 to 5, less 1, behind the last colon if there is one: a reply may repeat
/// the scale before it uses it. 0 where there is none.
fn read_helpfulness(reply: &str) -> usize {
    let told = reply.trim_end_matches(':').rsplit(':').next().unwrap_or(reply);
    let number = |word: &String| word.parse().ok().filter(|number| (1..=5).contains(number));
    words(told).iter().find_map(number).map_or(0, |number: usize| number - 1)
}

fn words(reply: &str) -> Vec<String> {
    let words = reply.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The character of the sentence at which what it shares with the statement ends. Full stops do not
/// count.
fn end_of(statement: &str, sentence: &str) -> Option<usize> {
    let stop = |text| str::strip_suffix(text, '.').unwrap_or(text);
    subsequence_end(stop(statement), stop(sentence))
}

impl CompletionRule for Rlfh {
    const ASKS: &'static [Verifier] = &[Verifier::Chat, Verifier::Passages];
    const READS_TRIPLETS: bool = false;

    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
        let sentences = completion.sentences.iter().zip(corpora);
        sentences
            .map(|(sentence, corpus)| self.score(&completion.question, sentence, corpus))
            .collect()
    }

    fn validate(&self) -> Result<(), String> {
        let sets = [("truth", self.truth), ("information", self.information)];
        let weights = [
            ("truth_weight", Some(self.truth_weight)),
            ("info_weight", self.info_weight),
            ("mu", Some(self.mu)),
        ];
        let maps = sets
            .iter()
            .flat_map(|(name, set)| set.iter().flatten().map(move |number| (*name, *number)));
        let numbers =
            maps.chain(weights.iter().filter_map(|(name, number)| Some((*name, (*number)?))));
        numbers.into_iter().try_for_each(|(name, number)| finite(name, number))?;
        if !(self.epsilon.is_finite() && self.epsilon + self.mu > 0.0) {
            return Err(format!(
                "`epsilon` and `mu` must add up to more than 0; got {} and {}",
                self.epsilon, self.mu
            ));
        }
        let counts = [
            ("passages", self.passages),
            ("words", self.words),
            ("statements", self.statements),
            ("tries", self.tries),
        ];
        counts.into_iter().try_for_each(|(name, number)| at_least_one(name, number.into()))
    }
}

corver_sdk::export!(Rlfh);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{FakeCorpus, Judged, check_with, completion, run_completion};
    use corver_sdk::{Credit, configured};

    const TEXT: &str = "Rome is in Italy, and it is old.";
    const LIST: &str = "- Rome is in Italy.\n- Rome is old.";

    /// The first statement is correct and helps at 5, the second is what `second` says.
    fn corpus(second: (&str, &str)) -> FakeCorpus {
        FakeCorpus::default()
            .replies("<text>", LIST)
            .replies("<question>Where is Rome?</question>\n<statement>Rome is in Italy.", "5")
            .replies("<question>Where is Rome?</question>\n<statement>Rome is old.", second.1)
            .replies("<statement>Rome is in Italy.</statement>\n<passage>The capital of Italy.</passage>", "Correct")
            .replies("<statement>Rome is old.", second.0)
            .finds(None, "Rome is in Italy.", &["The capital of Italy."])
            .finds(None, "Rome is old.", &["It has seven hills.", "Founded in 753 BC."])
    }

    fn judged_text(rule: &Rlfh, text: &str, corpus: &FakeCorpus) -> Judged {
        let mut completion = completion(&[(text, &[])]);
        completion.question = "Where is Rome?".to_owned();
        run_completion(rule, &completion, corpus).remove(0)
    }

    fn shares(rule: &Rlfh, second: (&str, &str)) -> Vec<(u32, f32)> {
        match judged_text(rule, TEXT, &corpus(second)).credit {
            Some(Credit::Points(points)) => {
                points.iter().map(|point| (point.character, point.reward)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn close(got: &[(u32, f32)], expected: &[(u32, f32)]) {
        let is_close = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-5;
        assert!(
            got.len() == expected.len() && got.iter().zip(expected).all(is_close),
            "{got:?}, not {expected:?}"
        );
    }

    #[test]
    fn truth_rewards_statement_end_and_information_sentence_end() {
        // "Rome is in Italy" ends at character 15, "Rome is old" at 30, and the sentence's full stop is 31.
        // Correct, 5: 0.45 · 1.25 = 0.5625. Wrong, 2: −1.7 · 0.1 = −0.17. 1.2 · ln(1.25 + 0.1 + 1) = 1.2 · 0.854415 = 1.025298.
        let expected = [(15, 0.5625), (30, -0.17), (31, 1.025_298)];
        close(&shares(&Rlfh::default(), ("Wrong", "2")), &expected);
        let judged = judged_text(&Rlfh::default(), TEXT, &corpus(("Wrong", "2")));
        assert!((judged.reward.unwrap() - 1.417_798).abs() < 1e-5, "{judged:?}");
        assert_eq!(judged.asked.len(), 1 + 2 + 2 * 2);
        assert_eq!(judged.note.as_deref(), Some("1 of 2 correct"));
        // By sentence: the same, all at the full stop.
        let by_sentence: Rlfh = configured(r#"{"granularity": "sentence"}"#).unwrap();
        close(&shares(&by_sentence, ("Wrong", "2")), &expected.map(|(_, share)| (31, share)));
    }

    #[test]
    fn unhelpful_statements_cost_and_log_is_floored() {
        // Vague, 1: −1 · |−0.2| = −0.2; 1.2 · ln(1.25 − 0.2 + 1) = 1.2 · 0.717840 = 0.861408.
        close(
            &shares(&Rlfh::default(), ("Vague", "1")),
            &[(15, 0.5625), (30, -0.2), (31, 0.861_408)],
        );
        // −3 for 1: 0.5625, −1 · 3, and 1.2 · ln(max(−0.9, 1.25 − 3) + 1) = 1.2 · ln 0.1 =
        // −2.763102.
        let harsh: Rlfh = configured(r#"{"information": [-3, 0.1, 0.75, 1, 1.25]}"#).unwrap();
        close(&shares(&harsh, ("Vague", "1")), &[(15, 0.5625), (30, -3.0), (31, -2.763_102)]);
    }

    #[test]
    fn presets_match_published_weights() {
        let shares = |json: &str| shares(&configured(json).unwrap(), ("Wrong", "3"));
        // Code: 1 · 1.3; −2 · 1.1; ln(1.3 + 1.1 + 1) = 1.223775.
        close(&shares(r#"{"preset": "code"}"#), &[(15, 1.3), (30, -2.2), (31, 1.223_775)]);
        // Training: 0.3 · 1.3; −1.2 · 1.1; the same information.
        close(&shares(r#"{"preset": "training"}"#), &[(15, 0.39), (30, -1.32), (31, 1.223_775)]);
        // Readme: 0.45 · 1.25; −1.7 · 0.75; 1.2 · ln(1.25 + 0.75 + 1) = 1.2 · 1.098612 = 1.318335.
        close(&shares("{}"), &[(15, 0.5625), (30, -1.275), (31, 1.318_335)]);
        // Weights and a map of one's own: 0.5 · 10 · 1.3; 0.5 · −4 · 1.1; 2 · 1.223775.
        let own = r#"{"preset": "code", "truth": [10, 0, 0, 0, -4], "truth_weight": 0.5, "info_weight": 2}"#;
        close(&shares(own), &[(15, 6.5), (30, -2.2), (31, 2.447_551)]);
    }

    #[test]
    fn hedged_verdicts_have_own_rewards() {
        // 0.35 · 1 and −1.5 · 1; 1.2 · ln(1.25 + 1 + 1) = 1.2 · 1.178655 = 1.414386.
        close(
            &shares(&Rlfh::default(), ("Hedged correct", "4")),
            &[(15, 0.5625), (30, 0.35), (31, 1.414_386)],
        );
        close(
            &shares(&Rlfh::default(), ("hedged wrong.", "4")),
            &[(15, 0.5625), (30, -1.5), (31, 1.414_386)],
        );
    }

    #[test]
    fn unreadable_replies_default_to_vague_and_unhelpful() {
        assert_eq!(
            ["Correct.", "It is WRONG", "incorrect", "", "vague"].map(read_verdict),
            [0, 4, 2, 2, 2]
        );
        assert_eq!(
            ["Wrong. The correct capital is Rome.", "Hedged correct", "hedged, wrong"]
                .map(read_verdict),
            [4, 1, 3]
        );
        assert_eq!(["5", "4 out of 5", "", "none", "0.9"].map(read_helpfulness), [4, 3, 0, 0, 0]);
        assert_eq!(
            ["On a scale of 1 to 5: 4", "**Rating:** 2/5", "10"].map(read_helpfulness),
            [3, 1, 0]
        );
    }

    #[test]
    fn abstains_on_questions_refusals_and_empty_lists() {
        let note = |text: &str, reply: &str| {
            let judged = judged_text(
                &Rlfh::default(),
                text,
                &FakeCorpus::default().replies("<text>", reply),
            );
            assert_eq!(judged.reward, None);
            (judged.note.unwrap(), judged.asked.len())
        };
        for text in ["Is Rome old?", "I’m sorry, but no.", "I do not have any information on Rome."]
        {
            assert_eq!(note(text, ""), ("a question or a refusal".into(), 0), "{text}");
        }
        assert_eq!(note("Well.", "NONE"), ("no statement".into(), 1));
        // Asked twice, with another seed: shown once.
        assert_eq!(note("Well.", "Well."), ("no list of its statements could be read".into(), 1));
    }

    #[test]
    fn passage_words_and_statements_are_limited() {
        let rule: Rlfh = configured(r#"{"words": 2, "statements": 1, "passages": 1}"#).unwrap();
        let corpus = FakeCorpus::default()
            .replies("<text>", LIST)
            .replies("<passage>The capital</passage>", "Correct")
            .replies("<question>", "5")
            .finds(None, "Rome is in Italy.", &["The capital of Italy.", "Another."]);
        let judged = judged_text(&rule, TEXT, &corpus);
        assert_eq!((judged.asked.len(), judged.note.as_deref()), (4, Some("1 of 1 correct")));
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let refused = |json: &str| configured::<Rlfh>(json).unwrap_err();
        assert!(
            refused(r#"{"preset": "paper"}"#)
                .contains("expected one of `readme`, `code`, `training`")
        );
        assert!(refused(r#"{"mu": 0.9}"#).contains("`epsilon` and `mu`"));
        assert!(refused(r#"{"truth": [1e39, 0, 0, 0, 0]}"#).contains("`truth`"));
        assert!(refused(r#"{"info_weight": 1e39}"#).contains("`info_weight`"));
        for name in ["passages", "words", "statements", "tries"] {
            assert!(refused(&format!(r#"{{"{name}": 0}}"#)).contains(name));
        }
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        // Of at most 20 statements: −20 · 1.7 · 1.25 + 1.2 · ln 0.1, and 20 · 0.45 · 1.25 + 1.2 ·
        // ln 26.
        let replies = [LIST, "- Rome is old.\n", "NONE", "Correct", "Wrong", "5", "1"];
        check_with(&Rlfh::default(), -45.3..=15.2, &replies);
    }
}
