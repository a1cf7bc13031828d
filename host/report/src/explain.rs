//! The page about a completion: rewards of its sentences with reasons, and advantages of their
//! tokens.

use corver_core::advantage::signed;
use corver_core::{
    Baseline, CountPrecision, Estimator, Lookup, ResponseGrades, ReturnParts, RewardSettings,
    SentenceTrace, Trace, TracedReturns, traced_returns,
};
use maud::{Markup, html};
use serde::Serialize;

use crate::page::{page, table};
use crate::{LoadedRun, ReportError, completion, number};

/// A completion with everything that its page shows.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedCompletion {
    /// Origin of the completion, as shown: run, step and number, or file and line.
    pub origin: String,
    /// Record of how its returns were computed.
    pub trace: Trace,
    /// Returns of each sentence's tokens.
    pub returns: TracedReturns,
    /// Group of the completion. `None` if it was scored alone, or the algorithm has no baseline.
    pub group: Option<ExplainedGroup>,
    /// Corpus passages for each distinct query.
    pub evidence: Vec<QueryEvidence>,
}

/// The completions of one question in one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedGroup {
    /// Baseline that is subtracted from the returns.
    #[serde(flatten)]
    pub baseline: Baseline,
    /// Mean return R_k of each completion of the group.
    pub mean_returns: Vec<f64>,
    /// Index of this completion in the group, from 0.
    pub place: usize,
    /// Advantage of tokens that belong to no sentence.
    pub outside: f64,
    /// Advantages of each sentence's tokens.
    pub sentences: Vec<f64>,
}

impl ExplainedGroup {
    /// Computes a completion's advantages in its group; `place` is its index there.
    #[must_use]
    pub fn new(
        baseline: Baseline,
        mean_returns: Vec<f64>,
        place: usize,
        returns: &TracedReturns,
    ) -> Self {
        let of_sentence = |(value, label): (&f64, &i8)| signed(baseline.advantage(*value), *label);
        let sentences =
            returns.sentences.iter().zip(&returns.advantage_signs).map(of_sentence).collect();
        Self {
            baseline,
            mean_returns,
            place,
            outside: baseline.advantage(returns.outside),
            sentences,
        }
    }
}

/// Corpus passages that match a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueryEvidence {
    /// Query of the rule.
    pub query: String,
    /// Some of the matching passages.
    pub passages: Vec<MatchedPassage>,
    /// Reason why the passages cannot be shown. `None`: they can, even if nothing matches.
    pub missing: Option<String>,
}

/// Text of the corpus around a match.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatchedPassage {
    /// Document of the passage, as shown.
    pub origin: String,
    /// Text of the passage, in order.
    pub pieces: Vec<Piece>,
}

/// A piece of a [`MatchedPassage`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Piece {
    /// Text of the piece, with its white space.
    pub text: String,
    /// True if the piece matches words of the query.
    pub matched: bool,
}

impl ExplainedCompletion {
    /// Explains a trace, without group and evidence.
    #[must_use]
    pub fn new(origin: String, trace: Trace, settings: &RewardSettings) -> Self {
        let returns = traced_returns(&trace, settings);
        Self { origin, trace, returns, group: None, evidence: Vec::new() }
    }

    /// Returns the distinct queries of its sentences, with their counts.
    #[must_use]
    pub fn lookups(&self) -> Vec<&Lookup> {
        let mut distinct: Vec<&Lookup> = Vec::new();
        for lookup in self.trace.sentences.iter().flat_map(lookups) {
            if distinct.iter().all(|known| known.query.all_of != lookup.query.all_of) {
                distinct.push(lookup);
            }
        }
        distinct
    }
}

/// Explains a completion of a step of a run, or the best and the worst if `completion` is `None`.
/// The default step is the last.
///
/// # Errors
/// Fails if the run has no such step or completion, or its traces cannot be read or are malformed.
pub fn of_step(
    run: &LoadedRun,
    step: Option<usize>,
    completion: Option<usize>,
) -> Result<Vec<ExplainedCompletion>, ReportError> {
    let step = step.unwrap_or_else(|| run.last_step());
    let traces = run.traces_of(step)?;
    let count = traces.len();
    let size = run.settings.rollout.num_generations.max(1);
    if !count.is_multiple_of(size) {
        return Err(ReportError::NotThere(format!(
            "step {step} is incomplete: it has {count} completions in groups of {size}"
        )));
    }
    let means: Vec<f64> = traces.iter().map(|trace| trace.mean_return).collect();
    let places = match completion {
        Some(completion) if completion >= count => {
            return Err(ReportError::NotThere(format!(
                "step {step} has no completion {completion}: it has {count}, numbered from 0"
            )));
        }
        Some(completion) => vec![completion],
        None => best_and_worst(&means),
    };
    // PPO and DPO have no group baseline: critic values and pairs are not in the traces.
    let baselines =
        Estimator::new(&run.settings.update, run.settings.advantage).baselines(&means, size);
    let explained = |place: usize| {
        let which = match (completion, place == places[0]) {
            (Some(_), _) => "",
            (None, true) => ", the largest return of its step",
            (None, false) => ", the smallest return of its step",
        };
        let origin = format!("{}, step {step}, completion {place}{which}", run.name);
        let mut explained =
            ExplainedCompletion::new(origin, traces[place].clone(), &run.settings.reward);
        let first = place / size * size;
        let of_group = || means[first..first + size].to_vec();
        let group = |all: &Vec<Baseline>| {
            ExplainedGroup::new(all[place], of_group(), place - first, &explained.returns)
        };
        explained.group = baselines.as_ref().map(group);
        explained
    };
    Ok(places.iter().map(|place| explained(*place)).collect())
}

fn best_and_worst(means: &[f64]) -> Vec<usize> {
    let by_mean = |a: &usize, b: &usize| means[*a].total_cmp(&means[*b]);
    let mut places: Vec<usize> = (0..means.len()).max_by(by_mean).into_iter().collect();
    places.extend((0..means.len()).min_by(by_mean).filter(|worst| !places.contains(worst)));
    places
}

fn lookups(sentence: &SentenceTrace) -> &[Lookup] {
    sentence.verdict.as_ref().map_or(&[], |verdict| &verdict.lookups)
}

/// Returns the page about some completions, which were scored with `settings`.
#[must_use]
pub fn explain(completions: &[ExplainedCompletion], settings: &RewardSettings) -> String {
    let title = match completions {
        [one] => format!("Rewards of {}", one.origin),
        several => format!("Rewards of {} completions", several.len()),
    };
    let body = html! {
        h1 { (title) }
        @for explained in completions { (section(explained, settings, completions.len() > 1)) }
    };
    page(&title, &body)
}

fn section(
    explained: &ExplainedCompletion,
    settings: &RewardSettings,
    is_one_of_several: bool,
) -> Markup {
    let ExplainedCompletion { origin, trace, .. } = explained;
    html! {
        h2 { (trace.question) }
        @if is_one_of_several { p.soft { (origin) } }
        (completion::coloured(trace, settings))
        (completion::scale())
        h3 { "Return" }
        (parts(trace, settings))
        @if trace.fallback {
            p {
                @if trace.sentences.is_empty() {
                    span.warn { "It has no sentences." }
                } @else {
                    span.warn { "Its sentences got no rewards: " }
                    "only " (number::percent(trace.alignment_rate))
                    " of their tokens could be aligned."
                }
            }
        }
        @if let Some(group) = &explained.group { (compared(group)) }
        h3 { "Sentence by sentence" }
        div.columns {
            @for (n, traced) in trace.sentences.iter().enumerate() {
                (sentence(explained, n, traced))
            }
        }
        @if !explained.evidence.is_empty() {
            h3 { "Corpus passages" }
            @for evidence in &explained.evidence { (passages(evidence)) }
        }
    }
}

/// Returns the table of the parts of the mean return.
fn parts(trace: &Trace, settings: &RewardSettings) -> Markup {
    let ResponseGrades { judge, format } = &trace.response;
    let parts = ReturnParts::new(trace, settings);
    let row = |what: &str, label: &str, value: f64| {
        vec![what.to_owned(), label.to_owned(), number::with_sign(value)]
    };
    let rows = [
        row("judge", &judge.label, parts.judge),
        row("format", &format.label, parts.format),
        row("sentences", "on average", parts.sentences),
        row("mean return", "", trace.mean_return),
    ];
    html! {
        (table(&["", "", "return"], &rows))
        @for (what, note) in [("judge", &judge.note), ("format", &format.note)] {
            @if let Some(note) = note { p.note { (what) ": " (note) } }
        }
    }
}

fn compared(group: &ExplainedGroup) -> Markup {
    let others: Vec<String> =
        group.mean_returns.iter().map(|value| number::with_sign(*value)).collect();
    html! {
        ul.figures {
            li { span { "baseline " } (number::with_sign(group.baseline.centre)) }
            li { span { "deviation " } (number::short(group.baseline.spread)) }
            li {
                span { "advantage of tokens outside sentences " }
                (number::with_sign(group.outside))
            }
        }
        p.note {
            "Mean returns of the group: "
            @for (n, value) in others.iter().enumerate() {
                @if n == group.place { b { (value) } } @else { (value) }
                @if n + 1 < others.len() { ", " }
            }
        }
    }
}

fn sentence(explained: &ExplainedCompletion, n: usize, sentence: &SentenceTrace) -> Markup {
    let verdict = sentence.verdict.as_ref();
    let reward = verdict.and_then(|verdict| verdict.reward);
    html! {
        div.sentence {
            p { (completion::marked(&sentence.text, sentence)) }
            ul.figures {
                li { span { "reward " } (signed_or(reward, "none")) }
                @if let Some(value) = explained.returns.sentences.get(n) {
                    li { span { "return " } (number::with_sign(*value)) }
                }
                @if let Some(value) = explained.group.as_ref().and_then(|g| g.sentences.get(n)) {
                    li { span { "advantage " } (number::with_sign(*value)) }
                }
                @if let Some(tokens) = &sentence.tokens {
                    li { span { "tokens " } (tokens.start) " to " (tokens.end.saturating_sub(1)) }
                }
            }
            @if !sentence.triplets.is_empty() { (triplets(sentence)) }
            @if !lookups(sentence).is_empty() { (counts(sentence)) }
            @for channel in verdict.into_iter().flat_map(|verdict| &verdict.channels) {
                p.note {
                    (channel.rule) " × " (channel.weight) ": "
                    (signed_or(channel.reward, "abstains"))
                    @if let Some(note) = &channel.note { ", " (note) }
                }
            }
            @if let Some(note) = verdict.and_then(|verdict| verdict.note.as_ref()) { p.note { (note) } }
        }
    }
}

fn signed_or(reward: Option<f32>, absent: &str) -> String {
    reward.map_or(absent.to_owned(), |reward| number::with_sign(reward.into()))
}

fn triplets(sentence: &SentenceTrace) -> Markup {
    let decided = sentence.verdict.as_ref().and_then(|verdict| verdict.triplet);
    html! {
        div.table {
            table {
                thead {
                    tr { th.words { "head" } th.words { "relation" } th.words { "tail" } th { "" } }
                }
                tbody {
                    @for (n, triplet) in (0..).zip(&sentence.triplets) {
                        tr {
                            td.words { (triplet.head) }
                            td.words { (triplet.relation) }
                            td.words { (triplet.tail) }
                            td { @if decided == Some(n) { "decided" } }
                        }
                    }
                }
            }
        }
    }
}

fn counts(sentence: &SentenceTrace) -> Markup {
    html! {
        ul.figures {
            @for Lookup { query, count } in lookups(sentence) {
                li {
                    code { (query) } span { " occurs " }
                    @match count.precision {
                        CountPrecision::Exact => "",
                        CountPrecision::AtLeast => "at least ",
                        CountPrecision::Estimate => "about ",
                    }
                    @match count.occurrences {
                        Some(1) => "once",
                        Some(count) => { (count) " times" }
                        None => "– the count is not known",
                    }
                }
            }
        }
    }
}

fn passages(evidence: &QueryEvidence) -> Markup {
    html! {
        p { code { (evidence.query) } }
        @if let Some(why) = &evidence.missing { p.soft { (why) } }
        @else if evidence.passages.is_empty() { p.soft { "Nothing matches." } }
        @for passage in &evidence.passages {
            blockquote {
                cite { (passage.origin) }
                @for piece in &passage.pieces {
                    @if piece.matched { b { (piece.text) } } @else { (piece.text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corver_core::{AdvantageSettings, Count, Query, Triplet, baselines};

    use super::*;
    use crate::testing::trace;

    fn explained() -> ExplainedCompletion {
        let mut trace = trace(
            "Where <i>is</i> it?",
            "<think>Paris is in <script>France</script>.</think><answer>Rome</answer>",
            3.05,
        );
        let verdict = trace.sentences[0].verdict.as_mut().unwrap();
        let count = Count { occurrences: Some(34), precision: CountPrecision::Estimate };
        verdict.lookups = vec![Lookup { query: Query::new([["Paris"], ["<b>France"]]), count }; 2];
        verdict.note = Some("a <note>".into());
        verdict.triplet = Some(0);
        let part = |text: &str| text.to_owned();
        trace.sentences[0].triplets =
            vec![Triplet { head: part("Paris"), relation: part("is <in>"), tail: part("France") }];
        let settings = RewardSettings::default();
        let mut explained = ExplainedCompletion::new("step 3".into(), trace, &settings);
        let baseline = baselines(&[3.05, 1.05], 2, &AdvantageSettings::default())[0];
        explained.group =
            Some(ExplainedGroup::new(baseline, vec![3.05, 1.05], 0, &explained.returns));
        explained
    }

    #[test]
    fn page_says_why_sentences_are_not_scored() {
        let mut one = explained();
        one.trace.fallback = true;
        one.trace.alignment_rate = 0.25;
        let unaligned = explain(&[one], &RewardSettings::default());
        assert!(unaligned.contains("only 25.0\u{a0}% of their tokens"), "{unaligned}");

        let mut without = explained();
        without.trace.fallback = true;
        without.trace.sentences.clear();
        let empty = explain(&[without], &RewardSettings::default());
        assert!(empty.contains("It has no sentences."), "{empty}");
        assert!(!empty.contains("could be aligned"), "{empty}");
    }

    #[test]
    fn explain_page_shows_sentence_reward_and_evidence() {
        let mut one = explained();
        assert_eq!(one.lookups().len(), 1);
        let piece = |text: &str, matched| Piece { text: text.into(), matched };
        let passage = MatchedPassage {
            origin: "Atlas <1>".into(),
            pieces: vec![piece("Here ", false), piece("Paris", true), piece(" lies & <u>", false)],
        };
        one.evidence.push(QueryEvidence {
            query: "Paris AND France".into(),
            passages: vec![passage],
            missing: None,
        });
        one.evidence.push(QueryEvidence {
            query: "Rome".into(),
            passages: vec![],
            missing: Some("the server only counts".into()),
        });
        let page = explain(&[one], &RewardSettings::default());
        for part in [
            "<td>judge</td><td>GOOD</td><td>+2.00</td>",
            "baseline </span>+2.05",
            "return </span>+3.10",
            "Paris AND &lt;b&gt;France</code><span> occurs </span>about 34 times",
            "is &lt;in&gt;",
            "a &lt;note&gt;",
            "<td>decided</td>",
            "Here <b>Paris</b> lies &amp; &lt;u&gt;",
            "the server only counts",
        ] {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(!page.contains("<script") && !page.contains("<i>"), "{page}");
    }

    #[test]
    fn explained_advantages_use_group_baseline() {
        let group = explained().group.unwrap();
        // Means 3.05 and 1.05: centre 2.05, deviation √2. Outside 3, in a sentence 3.1.
        let scale = 2f64.sqrt() + 1e-4;
        assert!((group.outside - 0.95 / scale).abs() < 1e-9);
        assert!((group.sentences[0] - 1.05 / scale).abs() < 1e-6);
    }
}
