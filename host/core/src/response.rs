//! The response-level rewards: the answer judge (string match) and the format check. Each is a
//! [`ResponseGrader`], which a run may replace.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::template::{ANSWER, MIN_REASONING, THINK, answer_block, answers_in_think};
use crate::text::{is_space, strip, words};
use crate::{
    Backends, BoxError, Capability, Compatibility, Completion, Exchange, Language, Lookup,
    RewardSettings, TextSettings, compat, language,
};

/// Least bytes of golds that are searched for together.
const MIN_GROUP_BYTES: usize = 4096;

/// Grade of the built-in answer judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Label {
    /// The answer matches a gold.
    Good,
    /// The answer matches no gold.
    Bad,
    /// The completion refuses, or has no answer.
    NotAttempted,
}

impl Label {
    /// Returns R^j of the paper: GOOD +2, the others −1.
    #[must_use]
    pub fn reward(self) -> f64 {
        if self == Label::Good { 2.0 } else { -1.0 }
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Good => "GOOD",
            Self::Bad => "BAD",
            Self::NotAttempted => "NOT_ATTEMPTED",
        })
    }
}

/// A response rule's reward for one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// Reward of every token of the completion, before the weight; finite.
    pub reward: f64,
    /// One-word name of the grade for the trace; the built-in judge's is a [`Label`].
    pub label: String,
    /// Explanation in the rule's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Queries of the rule about this completion with their counts, each once, in the order requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<Lookup>,
    /// All other requests about it with their replies, each once, in the order requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
}

impl Grade {
    /// Creates a grade without a note or requests.
    #[must_use]
    pub fn new(reward: f64, label: impl ToString) -> Self {
        Self { reward, label: label.to_string(), ..Self::default() }
    }
}

/// An answer judge or a format check, which grades whole completions.
pub trait ResponseGrader: Send {
    /// Returns the capabilities that the rule needs in addition to counts.
    fn required_capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Returns one grade per completion, in order.
    ///
    /// # Errors
    /// Fails if the rule breaks its contract or a limit, or a backend fails; no grade is returned
    /// then.
    fn grade(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, BoxError>;
}

/// The answer judge of the paper or of its published code: [`AnswerRule::grade`]. The reward of a
/// question without golds is 0. A note reports an answer inside the think block.
#[derive(Debug, Clone, Copy, Default)]
pub struct StringMatch {
    /// Settings that decide how a completion is read.
    pub text: TextSettings,
    /// Reward of a refusal in words; `None`: that of a wrong answer. A completion without an answer
    /// is no refusal.
    pub refusal: Option<f64>,
}

impl StringMatch {
    /// Name of the judge in results.
    pub const NAME: &str = "string-match";
}

impl ResponseGrader for StringMatch {
    fn grade(
        &mut self,
        completions: &[Completion<'_>],
        _: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, BoxError> {
        let rule = AnswerRule::of_training(self.text);
        let mut grades = Vec::with_capacity(completions.len());
        for completion in completions {
            if completion.golds.is_empty() {
                grades.push(Grade::new(0.0, "NO_GOLD"));
                continue;
            }
            let answer = rule.extract(completion.text);
            let label = rule.grade_answer(answer, completion.golds);
            let reward = match self.refusal {
                Some(reward) if rule.is_refusal(answer) => reward,
                _ => label.reward(),
            };
            let is_inside = answers_in_think(completion.text);
            let note = is_inside.then(|| "the first <answer> is inside the think block".to_owned());
            grades.push(Grade { note, ..Grade::new(reward, label) });
        }
        Ok(grades)
    }
}

/// The format check of the paper or of its published code: [`format_reward`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ThinkThenAnswer {
    /// Authority if the paper and its published code differ.
    pub compatibility: Compatibility,
}

impl ThinkThenAnswer {
    /// Name of the format check in results.
    pub const NAME: &str = "think-then-answer";
}

impl ResponseGrader for ThinkThenAnswer {
    fn grade(
        &mut self,
        completions: &[Completion<'_>],
        _: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, BoxError> {
        let mut grades = Vec::with_capacity(completions.len());
        for completion in completions {
            grades.push(match format_fault(completion.text, self.compatibility) {
                None => Grade::new(1.0, "OK"),
                Some(fault) => Grade { note: Some(fault.to_owned()), ..Grade::new(-1.0, "BROKEN") },
            });
        }
        Ok(grades)
    }
}

/// The response rules of a run; by default the paper's.
pub struct Graders {
    /// Answer judge, which gives R^j.
    pub judge: Box<dyn ResponseGrader>,
    /// Format check, which gives R^f.
    pub format: Box<dyn ResponseGrader>,
}

impl Default for Graders {
    fn default() -> Self {
        Self::built_in(&RewardSettings::default())
    }
}

impl Graders {
    /// Creates the response rules of the paper, or those of its published code.
    #[must_use]
    pub fn built_in(settings: &RewardSettings) -> Self {
        let RewardSettings { compatibility, refusal, .. } = *settings;
        Self {
            judge: Box::new(StringMatch { text: settings.text(), refusal }),
            format: Box::new(ThinkThenAnswer { compatibility }),
        }
    }

    /// Returns both grades of each completion, in order.
    ///
    /// # Errors
    /// Fails if a rule fails, or does not return one grade per completion.
    pub fn grade(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<ResponseGrades>, BoxError> {
        let judge_grades = self.judge.grade(completions, backends)?;
        let format_grades = self.format.grade(completions, backends)?;
        for (rule, grades) in [("judge", &judge_grades), ("format check", &format_grades)] {
            if grades.len() != completions.len() {
                return Err(format!(
                    "the {rule} gave {} grades for {} completions",
                    grades.len(),
                    completions.len()
                )
                .into());
            }
        }
        let mut grades = Vec::with_capacity(completions.len());
        for (judge, format) in judge_grades.into_iter().zip(format_grades) {
            grades.push(ResponseGrades { judge, format });
        }
        Ok(grades)
    }
}

/// The response-level rewards of one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseGrades {
    /// Grade of the answer judge, R^j.
    pub judge: Grade,
    /// Grade of the format check, R^f.
    pub format: Grade,
}

/// The rule that finds the answer in a completion and grades it.
///
/// The paper has one for training, self-filter and evaluation (App. A.2). Its published scripts
/// have two, which differ from it and from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRule {
    /// Rule of the paper, in a language: the answer is the text of the answer block.
    Paper(Language),
    /// Rule of the published training judge and self-filter: without an answer block, the answer is
    /// the whole text.
    PublishedTraining,
    /// Rule of the published evaluation script: the answer goes past `</answer>` to the end of the
    /// text, closing tag included. So a refusal in a closed block is no refusal.
    PublishedEvaluation,
}

impl Default for AnswerRule {
    fn default() -> Self {
        Self::Paper(Language::default())
    }
}

impl AnswerRule {
    /// Returns the rule of the training judge and the self-filter.
    #[must_use]
    pub fn of_training(settings: TextSettings) -> Self {
        match settings.compatibility {
            Compatibility::Paper => Self::Paper(settings.language),
            Compatibility::Reference => Self::PublishedTraining,
        }
    }

    /// Returns the rule of the evaluation.
    #[must_use]
    pub fn of_evaluation(settings: TextSettings) -> Self {
        match settings.compatibility {
            Compatibility::Paper => Self::Paper(settings.language),
            Compatibility::Reference => Self::PublishedEvaluation,
        }
    }

    /// Returns the answer in a completion, trimmed; empty if there is none.
    #[must_use]
    pub fn extract(self, completion: &str) -> &str {
        match self {
            Self::Paper(_) => answer_block(completion).unwrap_or_default(),
            Self::PublishedTraining => compat::training_answer(completion),
            Self::PublishedEvaluation => compat::evaluation_answer(completion),
        }
    }

    /// Returns the grade of a completion: normalised string match in both directions.
    #[must_use]
    pub fn grade(self, completion: &str, golds: &[String]) -> Label {
        self.grade_answer(self.extract(completion), golds)
    }

    /// Returns the grade of an answer that has been extracted already.
    #[must_use]
    pub fn grade_answer(self, answer: &str, golds: &[String]) -> Label {
        if strip(answer).is_empty() || self.is_refusal(answer) {
            return Label::NotAttempted;
        }
        let mut normalized_golds = Vec::new();
        let mut bare_golds = Vec::new();
        for gold in golds {
            let normalized = normalize(gold, self.language());
            if normalized.is_empty() {
                bare_golds.push(gold);
            } else {
                normalized_golds.push(normalized);
            }
        }
        if matches!(self, Self::Paper(_)) && is_bare_gold(answer, &bare_golds) {
            return Label::Good;
        }
        match_golds(&normalize(answer, self.language()), &normalized_golds)
    }

    /// Returns the language of the texts. The published code knows English alone.
    fn language(self) -> Language {
        match self {
            Self::Paper(language) => language,
            Self::PublishedTraining | Self::PublishedEvaluation => Language::English,
        }
    }

    /// Returns true if an extracted answer is a refusal.
    #[must_use]
    pub fn is_refusal(self, answer: &str) -> bool {
        language::is_refusal(answer, self.language())
            || (self == Self::PublishedTraining && compat::is_training_refusal(answer))
    }
}

/// Returns GOOD if the normalised answer contains a normalised gold or is contained in one, and BAD
/// if not. An answer that normalises to nothing is NOT_ATTEMPTED.
fn match_golds(answer: &str, golds: &[String]) -> Label {
    if answer.is_empty() {
        return Label::NotAttempted;
    }
    if golds.iter().any(|gold| gold.contains(answer)) || contains_any(answer, golds) {
        Label::Good
    } else {
        Label::Bad
    }
}

/// Returns true if the answer contains one of the golds, none of which is empty. It is searched for
/// as many golds together as have its length, so that the time is linear in the texts.
fn contains_any(answer: &str, golds: &[String]) -> bool {
    let group_bytes = answer.len().max(MIN_GROUP_BYTES);
    let mut group = Vec::new();
    let mut bytes = 0;
    for gold in golds {
        if gold.len() > answer.len() {
            continue;
        }
        group.push(gold);
        bytes += gold.len();
        if bytes >= group_bytes {
            if find_any(answer, &group) {
                return true;
            }
            group.clear();
            bytes = 0;
        }
    }
    find_any(answer, &group)
}

fn find_any(answer: &str, golds: &[&String]) -> bool {
    let automaton =
        AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)).build(golds);
    automaton.expect("the golds are shorter than 2 GiB together").is_match(answer)
}

/// True if the answer is a gold that normalises to nothing, such as “A+”, “*” or “The The”. The
/// paper's match can never find these; they are compared without regard to case.
fn is_bare_gold(answer: &str, bare_golds: &[&String]) -> bool {
    let comparable = |text: &str| text.nfkd().collect::<String>().to_lowercase().trim().to_owned();
    let answer = comparable(answer);
    bare_golds.iter().any(|gold| !gold.trim().is_empty() && answer == comparable(gold))
}

/// Normalises a text: lower case, articles and punctuation dropped, words joined by a space.
///
/// English is normalised as in the published method: NFKD splits accents off, and a combining mark is
/// no word character. An accented word falls into pieces, and a lone “a” among them is dropped as an
/// article. Other languages keep their accents.
#[must_use]
pub fn normalize(text: &str, language: Language) -> String {
    if language != Language::English {
        return language::normalize(text, language);
    }
    let lowered = text.nfkd().collect::<String>().to_lowercase();
    words(&lowered)
        .filter(|word| !matches!(*word, "a" | "an" | "the"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns R^f: +1 if the completion reasons and then answers, −1 if not.
#[must_use]
pub fn format_reward(completion: &str, compatibility: Compatibility) -> f64 {
    if format_fault(completion, compatibility).is_none() { 1.0 } else { -1.0 }
}

/// Returns the reason why a completion fails the format check; `None` if it passes.
///
/// In the paper (App. A.2, “Format anti-hack constraints”) a completion passes if it follows the
/// template, and its reasoning has at least 30 characters (white space included) and a letter, and
/// does not begin with `<`.
fn format_fault(completion: &str, compatibility: Compatibility) -> Option<&'static str> {
    if compatibility == Compatibility::Reference {
        let matches = compat::keeps_format(completion);
        return (!matches).then_some("the completion does not match the published pattern");
    }
    let Some(reasoning) = templated_reasoning(completion) else {
        return Some("there is no closed think block with an answer block after it");
    };
    if reasoning.chars().count() < MIN_REASONING {
        return Some("the think block has fewer than 30 characters");
    }
    if !reasoning.contains(char::is_alphabetic) {
        return Some("the think block has no letter");
    }
    let begins_with_tag = reasoning.trim_start_matches(is_space).starts_with('<');
    begins_with_tag.then_some("the think block begins with “<”")
}

/// Returns the content of the first `<think>` block if an `<answer>` follows it; `None` if the
/// completion does not follow the template.
///
/// This is the paper's format-correct rule (App. A.2): the completion contains
/// `<think>…</think>…<answer>`. Text before, between and after the blocks is allowed. `</answer>` may
/// be missing, so that truncated outputs are not penalised. A `<think>` that the chat
/// template wrote into the prompt is not part of the completion, and does not count.
#[must_use]
pub fn templated_reasoning(completion: &str) -> Option<&str> {
    let (_, opened) = completion.split_once(THINK.open)?;
    let (reasoning, rest) = opened.split_once(THINK.close)?;
    rest.contains(ANSWER.open).then_some(reasoning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golds(list: &[&str]) -> Vec<String> {
        list.iter().map(|gold| (*gold).to_owned()).collect()
    }

    #[test]
    fn answer_judge_matches_golds_and_detects_refusals() {
        let grade =
            |completion: &str, list: &[&str]| AnswerRule::default().grade(completion, &golds(list));
        assert_eq!(grade("<think>x</think><answer>The Paris!</answer> y", &["paris"]), Label::Good);
        assert_eq!(grade("<answer>Par</answer>", &["Rome", "Paris"]), Label::Good);
        assert_eq!(grade("<answer>Paris", &["Paris"]), Label::Good);
        assert_eq!(grade("<answer> I DON'T know </answer>", &["know"]), Label::NotAttempted);
        assert_eq!(grade("<answer>I do not know", &["know"]), Label::NotAttempted);
        assert_eq!(grade("<answer></answer> Paris", &["Paris"]), Label::NotAttempted);
        assert_eq!(grade("<answer>...</answer>", &["x"]), Label::NotAttempted);
        assert_eq!(grade("<answer>Rome</answer>", &["Paris"]), Label::Bad);
    }

    #[test]
    fn paper_answer_judge_requires_answer_block() {
        let text = "London, Rome, Berlin, Madrid, Paris.";
        for rule in [AnswerRule::of_training, AnswerRule::of_evaluation] {
            assert_eq!(
                rule(TextSettings::default()).grade(text, &golds(&["Paris"])),
                Label::NotAttempted
            );
        }
        let label = |compatibility| {
            let list = golds(&["Paris"]);
            let completion = Completion { golds: &list, text, ..Completion::default() };
            StringMatch {
                text: TextSettings { compatibility, ..TextSettings::default() },
                refusal: None,
            }
            .grade(&[completion], &mut Backends::default())
            .unwrap()
            .remove(0)
            .label
        };
        assert_eq!(
            (label(Compatibility::Paper), label(Compatibility::Reference)),
            ("NOT_ATTEMPTED".into(), "GOOD".into())
        );
    }

    #[test]
    fn reference_answer_rules_differ_on_end_and_refusal() {
        let grade = |rule: AnswerRule, text: &str| rule.grade(text, &golds(&["know"]));
        let (training, evaluation) =
            (AnswerRule::PublishedTraining, AnswerRule::PublishedEvaluation);
        let closed = "<answer>I don't know</answer>";
        assert_eq!(
            (grade(training, closed), grade(evaluation, closed)),
            (Label::NotAttempted, Label::Good)
        );
        let curly = "<answer>I don\u{2019}t know</answer>";
        assert_eq!(
            (grade(training, curly), grade(AnswerRule::default(), curly)),
            (Label::NotAttempted, Label::Good)
        );
        assert_eq!(evaluation.extract("<answer>Rome</answer> or so "), "Rome</answer> or so");
    }

    #[test]
    fn answer_judge_grades_zero_without_golds() {
        let grade = |golds: &[String]| {
            let completion =
                Completion { golds, text: "<answer>Rome</answer>", ..Completion::default() };
            StringMatch::default()
                .grade(&[completion], &mut Backends::default())
                .unwrap()
                .remove(0)
                .reward
        };
        assert_eq!(
            (grade(&[]), grade(&golds(&["Rome"])), grade(&golds(&["Paris"]))),
            (0.0, 2.0, -1.0)
        );
    }

    #[test]
    fn answer_in_think_block_is_graded_with_note() {
        let list = golds(&["Rome"]);
        let grade = |text| {
            let completion = Completion { golds: &list, text, ..Completion::default() };
            StringMatch::default().grade(&[completion], &mut Backends::default()).unwrap().remove(0)
        };
        let inside = grade("<think>a <answer>Rome</answer></think><answer>Lima</answer>");
        let note = "the first <answer> is inside the think block";
        assert_eq!((inside.label.as_str(), inside.note.as_deref()), ("GOOD", Some(note)));
        let outside = grade("<think>a</think><answer>Rome</answer>");
        assert_eq!((outside.label.as_str(), outside.note), ("GOOD", None));
    }

    /// Oracle: the ternary reward of TruthRL, +1 replaced by the paper's +2.
    #[test]
    fn refusal_in_words_has_a_reward_of_its_own() {
        let list = golds(&["Paris"]);
        let grade = |refusal, answer: &str| {
            let text = format!("<think>x</think><answer>{answer}</answer>");
            let completion = Completion { golds: &list, text: &text, ..Completion::default() };
            let mut judge = StringMatch { refusal, ..StringMatch::default() };
            judge.grade(&[completion], &mut Backends::default()).unwrap().remove(0).reward
        };
        for (answer, expected) in
            [("Paris", 2.0), ("Rome", -1.0), ("I don't know", 0.0), ("", -1.0), ("...", -1.0)]
        {
            assert_eq!(grade(Some(0.0), answer), expected, "{answer:?}");
        }
        assert_eq!(grade(None, "I don't know"), -1.0);
    }

    /// Oracle: `exact_match_score` of SQuAD's evaluate-v1.1.py, which is also TriviaQA's. It calls
    /// equal what normalises to nothing on both sides; here the texts must be equal.
    #[test]
    fn gold_without_words_matches_itself_alone() {
        let grade = |rule: AnswerRule, answer: &str, gold: &str| {
            rule.grade(&format!("<answer>{answer}</answer>"), &golds(&[gold]))
        };
        for gold in ["A", "A+", "*", "The The", "…", "the"] {
            assert_eq!(grade(AnswerRule::default(), gold, gold), Label::Good, "{gold}");
            assert_eq!(grade(AnswerRule::default(), &gold.to_lowercase(), gold), Label::Good);
            assert_eq!(grade(AnswerRule::default(), "Rome", gold), Label::Bad, "{gold}");
            let published = grade(AnswerRule::PublishedTraining, gold, gold);
            assert_eq!(published, Label::NotAttempted, "{gold}");
        }
        assert_eq!(grade(AnswerRule::default(), "A", "A+"), Label::NotAttempted);
        assert_eq!(grade(AnswerRule::default(), "A", ""), Label::NotAttempted);
    }

    /// Oracle: a search for each gold by itself.
    #[test]
    fn many_golds_match_as_single_ones() {
        let answer = "on the 24th of may 1819 in kensington palace".repeat(3);
        let mut many: Vec<String> = (0..3_000).map(|n| format!("gold {n}")).collect();
        let grade = |golds: &[String]| AnswerRule::PublishedTraining.grade_answer(&answer, golds);
        assert_eq!(grade(&many), Label::Bad);
        for (gold, label) in [
            ("palace on the 24th", Label::Bad),
            ("palaceon the 24th", Label::Good),
            ("ensingt", Label::Good),
            ("Ensington", Label::Good),
            ("of June 1819", Label::Bad),
        ] {
            for index in [0, 1_500, 2_999] {
                let replaced = std::mem::replace(&mut many[index], gold.to_owned());
                assert_eq!(grade(&many), label, "{gold} at {index}");
                assert_eq!(grade(&golds(&[gold])), label, "{gold}");
                many[index] = replaced;
            }
        }
        many.push(format!("{answer} or later"));
        assert_eq!(grade(&many), Label::Good, "the gold contains the answer");
    }

    #[test]
    fn many_golds_of_long_answer_take_linear_time() {
        let answer = "abcdefghijk ".repeat(10_000);
        let bare = vec!["*".to_owned(); 50_000];
        let long: Vec<String> = (0..50_000).map(|n| format!("abcdefghijk abcd{n}")).collect();
        for many in [bare, long] {
            let start = std::time::Instant::now();
            assert_eq!(AnswerRule::default().grade_answer(&answer, &many), Label::Bad);
            // One search of the answer for each gold takes minutes.
            assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
        }
    }

    #[test]
    fn paper_rule_reads_other_languages() {
        let grade = |language, answer: &str, gold: &str| {
            let completion = format!("<answer>{answer}</answer>");
            AnswerRule::Paper(language).grade(&completion, &golds(&[gold]))
        };
        assert_eq!(grade(Language::German, "Es war die Donau.", "Die Donau"), Label::Good);
        // “Würzburg” is no “Wurzburg”: an accent is part of a letter.
        assert_eq!(grade(Language::German, "Wurzburg", "Würzburg"), Label::Bad);
        assert_eq!(grade(Language::German, "Ich weiß es nicht.", "Ulm"), Label::NotAttempted);
        assert_eq!(grade(Language::Chinese, "首都是北京。", "北京"), Label::Good);
        assert_eq!(grade(Language::Chinese, "南京", "北京"), Label::Bad);
        assert_eq!(grade(Language::French, "C'est l’Élysée", "Élysée"), Label::Good);
    }

    #[test]
    fn normalize_drops_articles_and_splits_at_accents() {
        assert_eq!(normalize(" The  Beatles—a band ", Language::English), "beatles band");
        assert_eq!(normalize("Dvo\u{159}\u{e1}k", Language::English), "dvor k");
    }

    fn format(completion: &str) -> f64 {
        format_reward(completion, Compatibility::Paper)
    }

    #[test]
    fn format_check_requires_thirty_characters_and_letter() {
        let of = |think: &str| format(&format!("<think>{think}</think><answer>x</answer>"));
        assert_eq!(of("Paris is the capital city of France."), 1.0);
        assert_eq!(of("unknown"), -1.0);
        assert_eq!((of(&"v".repeat(29)), of(&"v".repeat(30))), (-1.0, 1.0));
        assert_eq!((of(&"7".repeat(30)), of(&format!("{}г", "7".repeat(29)))), (-1.0, 1.0));
        assert_eq!(of("<b>Paris is the capital city of France."), -1.0);
        assert_eq!(of("\n <b>Paris is the capital city of France."), -1.0);
    }

    #[test]
    fn broken_format_is_explained() {
        let note = |text: &str, compatibility| {
            let completion = Completion { text, ..Completion::default() };
            let mut check = ThinkThenAnswer { compatibility };
            check.grade(&[completion], &mut Backends::default()).unwrap().remove(0).note
        };
        let of_paper = |think: &str| {
            let text = format!("<think>{think}</think><answer>x</answer>");
            note(&text, Compatibility::Paper).unwrap_or_default()
        };
        assert_eq!(of_paper("Paris is the capital city of France."), "");
        assert!(of_paper("Paris.").contains("fewer than 30 characters"));
        assert!(of_paper(&"7".repeat(30)).contains("no letter"));
        assert!(of_paper("<b>Paris is the capital city of France.").contains("begins with"));
        let unclosed = note("<think>Paris <answer>x", Compatibility::Paper);
        assert!(unclosed.is_some_and(|note| note.contains("no closed think block")));
        assert!(
            note("Paris", Compatibility::Reference).is_some_and(|note| note.contains("pattern"))
        );
    }

    #[test]
    fn format_check_requires_closed_think_before_answer() {
        let think = "<think>Paris is the capital city of France.</think>";
        for kept in [
            "{}<answer>",
            "\n{}\n<answer>x",
            "So: {} and so <answer>x</answer> then",
            "{}<answer>x<answer>y<think>",
        ] {
            let kept = kept.replace("{}", think);
            assert_eq!(format(&kept), 1.0, "{kept}");
        }
        for broken in [
            think,
            "Paris is the capital city of France.<answer>x</answer>",
            "Paris is the capital city of France.</think><answer>x</answer>",
            "<think>Paris is the capital city of France.<answer>x</answer>",
            "<think>x</think>Paris is the capital city of France.<answer>x</answer>",
            "<answer>x</answer><think>Paris is the capital city of France.</think>",
        ] {
            assert_eq!(format(broken), -1.0, "{broken}");
        }
    }

    #[test]
    fn paper_and_reference_format_checks_differ() {
        let published = |completion: &str| format_reward(completion, Compatibility::Reference);
        let reasoning = "Paris is the capital city of France.";
        for loose in [
            format!("{reasoning}<answer>x"),
            format!("<think>x</think>{reasoning}<answer>x"),
            format!("<think>{}</think><answer>x", "v".repeat(22)),
        ] {
            assert_eq!((published(&loose), format(&loose)), (1.0, -1.0), "{loose}");
        }
        for strict in [
            format!("\n<think>{reasoning}</think><answer>x"),
            format!("<think>{reasoning}</think><answer>"),
            "<think>Орла Венн написала эту книгу в 1904 году.</think><answer>x".to_owned(),
        ] {
            assert_eq!((published(&strict), format(&strict)), (-1.0, 1.0), "{strict}");
        }
    }
}
