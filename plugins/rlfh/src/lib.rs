//! Rlfh: RLFH's reward (Wen et al. 2024). A chat model lists the statements of a sentence, verifies
//! each against passages and rates its helpfulness. The truth reward goes to the last token of a
//! statement, the information reward to the last token of the sentence.
use std::collections::BTreeMap;

use corver_sdk::chat::{LIST_CLAIMS, extract_claims};
use corver_sdk::overlap::subsequence_end;
use corver_sdk::prelude::*;
use corver_sdk::schemars::JsonSchema;
use corver_sdk::serde::{Deserialize, Serialize};
use corver_sdk::{Passage, at_least_one};

settings! {
    /// Rewards true and helpful statements, token by token.
    pub struct Rlfh {
        /// Published numbers: `readme`, the recommended recipe; `code`, the defaults of the code;
        /// `training`, those of its training script.
        pub preset: Preset = Preset::Readme,
        /// Rewards of Correct, Hedged correct, Vague, Hedged wrong and Wrong; `null`: the preset's.
        pub truth: Option<[f64; 5]> = None,
        /// Rewards of helpfulness 1, 2, 3, 4 and 5; `null`: the preset's.
        pub information: Option<[f64; 5]> = None,
        /// Weight of the truth reward.
        pub truth_weight: f64 = 1.0,
        /// Weight of the information reward; `null`: the preset's.
        pub info_weight: Option<f64> = None,
        /// Lower bound of a sentence's information, before `mu` is added.
        pub epsilon: f64 = -0.9,
        /// Added to a sentence's information before the logarithm; more than −`epsilon`.
        pub mu: f64 = 1.0,
        /// `token`: the truth reward goes to the last token of the statement. `sentence`: to the last
        /// token of the sentence.
        pub granularity: CreditPosition = CreditPosition::Token,
        /// Passages for verifying a statement.
        pub passages: u32 = 3,
        /// Words of a passage in the prompt; the rest is cut off.
        pub words: u32 = 64,
        /// Greatest number of statements of a sentence; the others are ignored.
        /// `rule.limits.requests_per_sentence` must be at least 3 · `statements` + `tries`.
        pub statements: u32 = 20,
        /// Requests for a list of statements until a reply can be parsed.
        /// `rule.limits.rounds` must be at least `tries` + 2.
        pub tries: u32 = 2,
        /// The rule abstains on a sentence with one of these phrases, in any case, and on a question.
        pub refusals: Vec<String> = REFUSALS.map(str::to_owned).to_vec(),
        /// Instructions to the chat model for listing the statements of a sentence.
        pub extract_prompt: String = LIST_CLAIMS.to_owned(),
        /// Instructions for verifying a statement against passages.
        pub verify_prompt: String = VERIFY.to_owned(),
        /// Instructions for rating the helpfulness of a statement.
        pub assess_prompt: String = ASSESS.to_owned(),
    }
}

/// Published numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "corver_sdk::serde", rename_all = "lowercase")]
#[schemars(crate = "corver_sdk::schemars")]
pub enum Preset {
    Readme,
    Code,
    Training,
}

/// The token that receives the truth reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(crate = "corver_sdk::serde", rename_all = "lowercase")]
#[schemars(crate = "corver_sdk::schemars")]
pub enum CreditPosition {
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

/// A chat model's assessment of one statement.
struct Assessment {
    /// Index into the setting `truth`.
    truth: usize,
    /// Index into the setting `information`.
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
    fn score(
        &self,
        question: &str,
        sentence: &Sentence,
        corpus: &Corpus,
    ) -> Result<Verdict, Pending> {
        let text = sentence.text.as_str();
        let Some(last) = text.chars().count().checked_sub(1) else {
            return Ok(Verdict::abstain("an empty sentence"));
        };
        if self.is_skipped(text) {
            return Ok(Verdict::abstain("a question or a refusal"));
        }
        let listed = extract_claims(corpus, &self.extract_prompt, question, text, self.tries)?;
        let Some(mut statements) = listed else {
            return Ok(Verdict::abstain("no list of its statements could be read"));
        };
        statements.truncate(self.statements as usize);
        if statements.is_empty() {
            return Ok(Verdict::abstain("no statement"));
        }
        let assessments = self.assess(question, &statements, corpus)?;
        // Statements may end at the same character.
        let mut rewards: BTreeMap<usize, f64> = BTreeMap::new();
        for (statement, assessment) in statements.iter().zip(&assessments) {
            let end = match self.granularity {
                CreditPosition::Token => statement_end(statement, text).unwrap_or(last),
                CreditPosition::Sentence => last,
            };
            *rewards.entry(end).or_default() += self.truth_reward(assessment);
        }
        *rewards.entry(last).or_default() += self.information_reward(&assessments);
        let correct = assessments.iter().filter(|assessment| assessment.truth < 2).count();
        Ok(Verdict::token_rewards(rewards)
            .note(&format!("{correct} of {} correct", statements.len())))
    }

    fn is_skipped(&self, text: &str) -> bool {
        let lower = text.to_lowercase().replace('’', "'");
        text.ends_with('?')
            || self.refusals.iter().any(|phrase| lower.contains(&phrase.to_lowercase()))
    }

    /// Requests the passages of all statements in one round, and their assessments in the next.
    fn assess(
        &self,
        question: &str,
        statements: &[String],
        corpus: &Corpus,
    ) -> Result<Vec<Assessment>, Pending> {
        let searches = statements.iter().map(|statement| Search {
            title: None,
            query: statement.clone(),
            k: self.passages,
        });
        let passages = corpus.passages(searches)?;
        let mut prompts = Vec::new();
        for (statement, passages) in statements.iter().zip(&passages) {
            prompts.push(self.verification(statement, passages));
        }
        for statement in statements {
            let fields = [("question", question), ("statement", statement)];
            prompts.push(short_prompt(48, ChatPrompt::tagged(&self.assess_prompt, &fields)));
        }
        let replies = corpus.chats(prompts)?;
        let (verifications, ratings) = replies.split_at(statements.len());
        let pairs = verifications.iter().zip(ratings);
        Ok(pairs
            .map(|(verification, rating)| Assessment {
                truth: parse_truth(verification),
                helpfulness: parse_helpfulness(rating),
            })
            .collect())
    }

    fn verification(&self, statement: &str, passages: &[Passage]) -> ChatPrompt {
        let excerpts: Vec<String> = passages.iter().map(|passage| self.excerpt(passage)).collect();
        let mut fields = vec![("statement", statement)];
        fields.extend(excerpts.iter().map(|excerpt| ("passage", excerpt.as_str())));
        short_prompt(32, ChatPrompt::tagged(&self.verify_prompt, &fields))
    }

    fn excerpt(&self, passage: &Passage) -> String {
        let words: Vec<&str> = passage.text.split_whitespace().take(self.words as usize).collect();
        words.join(" ")
    }

    /// Returns w_t · V\[truth\] · |I\[helpfulness\]|.
    fn truth_reward(&self, assessment: &Assessment) -> f64 {
        let value = self.truth.unwrap_or(self.preset.truth())[assessment.truth];
        self.truth_weight * value * self.information(assessment).abs()
    }

    /// Returns w_i · ln(max(ε, Σ I\[helpfulness\]) + μ).
    fn information_reward(&self, assessments: &[Assessment]) -> f64 {
        let sum: f64 = assessments.iter().map(|assessment| self.information(assessment)).sum();
        self.info_weight.unwrap_or(self.preset.info_weight())
            * (sum.max(self.epsilon) + self.mu).ln()
    }

    fn information(&self, assessment: &Assessment) -> f64 {
        self.information.unwrap_or(self.preset.information())[assessment.helpfulness]
    }
}

fn short_prompt(max_tokens: u32, prompt: ChatPrompt) -> ChatPrompt {
    ChatPrompt { temperature: 0.3, top_p: 0.3, max_tokens, ..prompt }
}

/// Returns the index of the first verdict in the reply; that of Vague if there is none.
fn parse_truth(reply: &str) -> usize {
    let words: Vec<String> = lower_words(reply);
    for (index, word) in words.iter().enumerate() {
        let is_hedged = index > 0 && words[index - 1] == "hedged";
        match (word.as_str(), is_hedged) {
            ("correct", false) => return 0,
            ("correct", true) => return 1,
            ("vague", _) => return 2,
            ("wrong", true) => return 3,
            ("wrong", false) => return 4,
            _ => {}
        }
    }
    2
}

/// Returns the first number from 1 to 5, less 1; 0 if there is none. A reply may repeat the scale
/// first, so only the text after the last colon counts.
fn parse_helpfulness(reply: &str) -> usize {
    let rating = reply.trim_end_matches(':').rsplit(':').next().unwrap_or(reply);
    for word in lower_words(rating) {
        if let Ok(number @ 1..=5) = word.parse::<usize>() {
            return number - 1;
        }
    }
    0
}

fn lower_words(reply: &str) -> Vec<String> {
    let words = reply.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns the index of the character of the sentence at which its overlap with the statement ends,
/// full stops aside.
fn statement_end(statement: &str, sentence: &str) -> Option<usize> {
    let statement = statement.strip_suffix('.').unwrap_or(statement);
    subsequence_end(statement, sentence.strip_suffix('.').unwrap_or(sentence))
}

impl CompletionRule for Rlfh {
    const REQUIRES: &'static [Capability] = &[Capability::Chat, Capability::Passages];
    const READS_TRIPLETS: bool = false;
    const CREDIT: CreditKind = CreditKind::TokenRewards;

    fn score_sentences(
        &self,
        completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        let question = &completion.question;
        contexts
            .iter()
            .map(|context| self.score(question, context.sentence, &context.corpus))
            .collect()
    }

    fn validate(&self) -> Result<(), String> {
        for value in self.truth.iter().flatten() {
            finite("truth", *value)?;
        }
        for value in self.information.iter().flatten() {
            finite("information", *value)?;
        }
        finite("truth_weight", self.truth_weight)?;
        if let Some(weight) = self.info_weight {
            finite("info_weight", weight)?;
        }
        finite("mu", self.mu)?;
        if !(self.epsilon.is_finite() && self.epsilon + self.mu > 0.0) {
            return Err(format!(
                "`epsilon` and `mu` must add up to more than 0; got {} and {}",
                self.epsilon, self.mu
            ));
        }
        at_least_one("passages", self.passages.into())?;
        at_least_one("words", self.words.into())?;
        at_least_one("statements", self.statements.into())?;
        at_least_one("tries", self.tries.into())
    }
}

corver_sdk::export!(Rlfh);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{FakeCorpus, ScoredSentence, check_with, completion, run_completion};
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

    fn score_text(rule: &Rlfh, text: &str, corpus: &FakeCorpus) -> ScoredSentence {
        let mut completion = completion(&[(text, &[])]);
        completion.question = "Where is Rome?".to_owned();
        run_completion(rule, &completion, corpus).remove(0)
    }

    fn shares(rule: &Rlfh, second: (&str, &str)) -> Vec<(u32, f32)> {
        match score_text(rule, TEXT, &corpus(second)).credit {
            Some(Credit::TokenRewards(points)) => {
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
        let scored = score_text(&Rlfh::default(), TEXT, &corpus(("Wrong", "2")));
        assert!((scored.reward.unwrap() - 1.417_798).abs() < 1e-5, "{scored:?}");
        assert_eq!(scored.requests.len(), 1 + 2 + 2 * 2);
        assert_eq!(scored.note.as_deref(), Some("1 of 2 correct"));
        // By sentence: the sum, at the full stop.
        let by_sentence: Rlfh = configured(r#"{"granularity": "sentence"}"#).unwrap();
        close(&shares(&by_sentence, ("Wrong", "2")), &[(31, 1.417_798)]);
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
            ["Correct.", "It is WRONG", "incorrect", "", "vague"].map(parse_truth),
            [0, 4, 2, 2, 2]
        );
        assert_eq!(
            ["Wrong. The correct capital is Rome.", "Hedged correct", "hedged, wrong"]
                .map(parse_truth),
            [4, 1, 3]
        );
        assert_eq!(["5", "4 out of 5", "", "none", "0.9"].map(parse_helpfulness), [4, 3, 0, 0, 0]);
        assert_eq!(
            ["On a scale of 1 to 5: 4", "**Rating:** 2/5", "10"].map(parse_helpfulness),
            [3, 1, 0]
        );
    }

    #[test]
    fn abstains_on_questions_refusals_and_empty_lists() {
        let note = |text: &str, reply: &str| {
            let scored =
                score_text(&Rlfh::default(), text, &FakeCorpus::default().replies("<text>", reply));
            assert_eq!(scored.reward, None);
            (scored.note.unwrap(), scored.requests.len())
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
        let scored = score_text(&rule, TEXT, &corpus);
        assert_eq!((scored.requests.len(), scored.note.as_deref()), (4, Some("1 of 1 correct")));
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
    fn settings_name_the_limits_they_need() {
        let schema = <Rlfh as corver_sdk::RuleSettings>::schema();
        for limit in ["`rule.limits.rounds`", "`rule.limits.requests_per_sentence`"] {
            assert!(schema.contains(limit), "{limit} is not in {schema}");
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
