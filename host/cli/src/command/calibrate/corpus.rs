//! `corver-host calibrate corpus`: finds thresholds for a corpus without labels, from its own facts and
//! false twins of them.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corver_analysis::calibrate::{
    Auc, CorpusCalibration, CorpusFact, Interval, SheetRow, Suggestion, TwinPair, calibrate_pairs,
    make_twins, sheet_rows, suggest, write_sheet,
};
use corver_core::language::bare_triplets;
use corver_core::prose::split_prose;
use corver_core::{
    Backends, Completion, Extractor as _, ExtractorInput, Language, Query, Section, Sentence,
    SentenceScorer, Triplet,
};
use corver_corpus::{CnfOptions, Document, TextIndex};
use corver_counts::CorpusSource;
use corver_reward::config::{self, RewardConfig};
use corver_reward::parts::{self, Loader, OpenedExtractor, SentenceRules};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::saved::{self, cells};
use crate::args::CorpusCalibrationArgs;
use crate::files;
use crate::output;
use crate::settings;

/// Sentences that are drawn and extracted together.
const BATCH: usize = 256;
/// Sentences drawn for each fact, at most: many sentences state none.
const DRAWS_PER_FACT: usize = 40;
/// Length of a sentence that is drawn, characters.
const SENTENCE_CHARS: std::ops::RangeInclusive<usize> = 20..=400;
/// Smallest number of pairs for thresholds.
const MIN_PAIRS: usize = 50;
/// Smallest lower end of the AUC's interval for suggesting settings. It is a choice between two
/// corpora: with 0.54 the thresholds order a policy's labelled sentences worse than the default ones,
/// with 0.98 they are those of the truth (docs/reproduction.md).
const MIN_AUC: f64 = 0.6;

/// Names of the number and of the share of facts, in contrast to twins.
const NAMES: [&str; 2] = ["facts", "P(fact)"];

/// File with every fact and twin, in the form of a labelled sheet.
const SHEET: &str = "sheet.csv";

/// Calibration of a corpus, and the settings that it suggests.
#[derive(Serialize)]
struct CorpusResult {
    #[serde(flatten)]
    calibration: CorpusCalibration,
    /// Number of sentences drawn.
    sentences: usize,
    /// Number of facts without a tail of like kind and frequency to exchange.
    without_twin: usize,
    /// Number of twins left out because the fact's document has their words together, too.
    maybe_true: usize,
    /// Settings of rules; empty with `no_settings`.
    suggestions: Vec<Suggestion>,
    /// Reason for suggesting no settings.
    no_settings: Option<String>,
}

pub fn run(args: &CorpusCalibrationArgs, json: bool) -> Result<()> {
    if let Some(out) = &args.out {
        files::ensure_new(out)?;
    }
    let settings = settings::load(&args.settings, &[&args.reward])?;
    let (settings, config) = config::resolve::<RewardConfig>(settings)?;
    let sources = parts::resolve_sources(&config.corpus.sources)?;
    let [CorpusSource::Folder(folder)] = sources.as_slice() else {
        bail!("`corpus.index`: facts are drawn from the text of one index folder on this machine");
    };
    let mut rules = Loader::new(&config.rules)?.each_sentence_rule()?;
    ensure!(rules.len() == 1, "`rule.plugin`: one rule makes the queries, such as first.wasm");
    let mut source = FactSource {
        corpus: TextIndex::open(folder)?,
        language: settings.reward.language,
        options: config.corpus.counting,
        extractor: parts::open_extractor(&config.extractor)?,
        rule: rules.remove(0),
        backends: parts::open_backends(&config.corpus, &config.backends)?.1,
    };
    let seed = settings.run.seed;
    let (facts, sentences) = source.draw_facts(args.facts, seed)?;
    let found = source.pairs(&facts, seed)?;
    ensure!(
        found.pairs.len() >= MIN_PAIRS,
        "{sentences} sentences have only {} facts with a twin; at least {MIN_PAIRS} are needed",
        found.pairs.len()
    );
    let calibration = calibrate_pairs(&found.pairs, seed)?;
    let no_settings = reason_against_settings(calibration.auc);
    let mut suggestions = Vec::new();
    if no_settings.is_none() {
        suggestions = suggest(&calibration.calibration.buckets);
    }
    let result = CorpusResult {
        sentences,
        without_twin: found.without_twin,
        maybe_true: found.maybe_true,
        calibration,
        suggestions,
        no_settings,
    };
    let origin = format!(
        "{} facts of {} and as many false twins",
        result.calibration.pairs,
        folder.display()
    );
    let files = saved::config_files(&result.suggestions, &origin)?;
    if let Some(out) = &args.out {
        save(out, &result, &files, &sheet_rows(&found.pairs))?;
    }
    if json {
        return output::json(&result);
    }
    show(&result);
    if let Some(reason) = &result.no_settings {
        output::line(format_args!(
            "no settings are suggested: {reason}. Use the default thresholds, and label sentences of \
             your policy (calibrate draw)"
        ));
    }
    saved::show_files(&files, args.out.as_deref());
    Ok(())
}

/// Returns the reason for suggesting no settings; `None` if the AUC is large enough.
fn reason_against_settings(auc: Option<Auc>) -> Option<String> {
    match auc.and_then(|auc| auc.interval) {
        None => Some("there are too few documents for an interval of the AUC".to_owned()),
        Some(Interval { low, .. }) if low < MIN_AUC => {
            Some(format!("the AUC's interval begins at {low:.3}, below {MIN_AUC}"))
        }
        Some(_) => None,
    }
}

/// Index with the parts that read and count its facts.
struct FactSource {
    corpus: TextIndex,
    language: Language,
    options: CnfOptions,
    extractor: OpenedExtractor,
    rule: SentenceRules,
    backends: Backends<'static>,
}

/// Triplet that decides a rule's verdict, with a query of the rule.
struct CountedFact {
    triplet: Triplet,
    query: Query,
}

/// Sentence of a document.
struct DrawnSentence {
    /// Number of the document over all shards.
    number: u64,
    document: Document,
    title: String,
    text: String,
}

/// Fact with its document.
struct DrawnFact {
    document: Document,
    fact: CorpusFact,
}

/// Facts with their twins.
struct FoundPairs {
    pairs: Vec<TwinPair>,
    without_twin: usize,
    maybe_true: usize,
}

impl FactSource {
    /// Draws sentences until `wanted` facts are found, or the corpus has no more. Returns the facts and
    /// the number of sentences.
    fn draw_facts(&mut self, wanted: usize, seed: u64) -> Result<(Vec<DrawnFact>, usize)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut seen: HashSet<(u64, String)> = HashSet::new();
        let mut facts = Vec::new();
        let mut num_draws = 0;
        let bar = output::progress(wanted as u64, "reading facts");
        while facts.len() < wanted && num_draws < wanted.saturating_mul(DRAWS_PER_FACT) {
            let mut sentences = Vec::new();
            for _ in 0..BATCH {
                num_draws += 1;
                let Some(sentence) = self.draw_sentence(&mut rng)? else { continue };
                if seen.insert((sentence.number, sentence.text.clone())) {
                    sentences.push(sentence);
                }
            }
            for fact in self.facts_of(sentences)? {
                if facts.len() < wanted {
                    facts.push(fact);
                }
            }
            bar.set_position(facts.len() as u64);
        }
        bar.finish_and_clear();
        Ok((facts, seen.len()))
    }

    /// Draws a document and one of its sentences; `None` if it has none of usual length.
    fn draw_sentence(&self, rng: &mut ChaCha8Rng) -> Result<Option<DrawnSentence>> {
        let index = self.corpus.index();
        let number = rng.random_range(0..index.info().documents.max(1));
        let Some(document) = index.document_numbered(number)? else { return Ok(None) };
        let text = self.corpus.text(&document)?;
        let mut sentences = split_prose(&text, self.language);
        sentences.retain(|sentence| SENTENCE_CHARS.contains(&sentence.chars().count()));
        let Some(sentence) = sentences.choose(rng) else { return Ok(None) };
        let metadata = index.parsed_metadata(&document)?.unwrap_or_default();
        let title = metadata["metadata"]["title"].as_str().unwrap_or_default().to_owned();
        Ok(Some(DrawnSentence { number, document, title, text: (*sentence).to_owned() }))
    }

    /// Returns the fact of each sentence that the rule counts, without the matches of its own document.
    fn facts_of(&mut self, sentences: Vec<DrawnSentence>) -> Result<Vec<DrawnFact>> {
        let inputs: Vec<ExtractorInput<'_>> = sentences
            .iter()
            .map(|drawn| ExtractorInput { sentence: &drawn.text, question: &drawn.title })
            .collect();
        let triplets = self
            .extractor
            .extract(&inputs)
            .map_err(anyhow::Error::from_boxed)
            .context("extracting the facts of the sentences")?;
        let triplets = triplets.into_iter().map(|found| bare_triplets(found, self.language));
        let texts = sentences.iter().map(|drawn| drawn.text.as_str()).zip(triplets);
        let counted_facts = self.deciding_facts(texts.collect())?;
        let mut facts = Vec::new();
        for (drawn, counted) in sentences.into_iter().zip(counted_facts) {
            let Some(CountedFact { triplet, query }) = counted else { continue };
            let Some((all, own)) =
                self.corpus.matches_in(&drawn.document, &query.all_of, &self.options)?
            else {
                continue;
            };
            facts.push(DrawnFact {
                fact: CorpusFact {
                    document: drawn.number,
                    title: drawn.title,
                    sentence: drawn.text,
                    count: all - own,
                    tail_count: self.tail_count(&triplet, &query)?,
                    query: query.to_string(),
                    triplet,
                },
                document: drawn.document,
            });
        }
        Ok(facts)
    }

    /// Returns the fact of each sentence that decides the rule's verdict, with its own query; `None` if
    /// the rule abstains.
    fn deciding_facts(
        &mut self,
        sentences: Vec<(&str, Vec<Triplet>)>,
    ) -> Result<Vec<Option<CountedFact>>> {
        let texts: Vec<&str> = sentences.iter().map(|(text, _)| *text).collect();
        let decided = self.queries(sentences)?;
        // A verdict does not say which query is of which fact, so the one that decides is scored alone.
        let mut alone = Vec::with_capacity(texts.len());
        for (text, counted) in texts.into_iter().zip(decided) {
            let triplet = counted.map(|counted| counted.triplet);
            alone.push((text, triplet.into_iter().collect()));
        }
        self.queries(alone)
    }

    /// Returns the fact of each sentence that decides the rule's verdict, with the rule's first query;
    /// `None` if the rule abstains.
    fn queries(
        &mut self,
        sentences: Vec<(&str, Vec<Triplet>)>,
    ) -> Result<Vec<Option<CountedFact>>> {
        let mut inputs = Vec::with_capacity(sentences.len());
        for (text, triplets) in sentences {
            let text = text.to_owned();
            inputs.push([Sentence { text, section: Section::Body, span: None, triplets }]);
        }
        let completions: Vec<Completion<'_>> = inputs
            .iter()
            .map(|sentence| Completion {
                text: &sentence[0].text,
                sentences: sentence,
                ..Completion::default()
            })
            .collect();
        let verdicts = self
            .rule
            .score(&completions, &mut self.backends)
            .map_err(anyhow::Error::from_boxed)
            .context("scoring the sentences")?;
        let mut decided = Vec::with_capacity(inputs.len());
        for (sentence, verdicts_of_sentence) in inputs.iter().zip(verdicts) {
            let verdict = verdicts_of_sentence.into_iter().next().unwrap_or_default();
            let triplet = verdict.triplet.and_then(|n| sentence[0].triplets.get(n as usize));
            let lookup = verdict.lookups.into_iter().next();
            decided.push(triplet.zip(lookup).map(|(triplet, lookup)| CountedFact {
                triplet: triplet.clone(),
                query: lookup.query,
            }));
        }
        Ok(decided)
    }

    /// Counts the words of a query that are the tail's.
    fn tail_count(&self, triplet: &Triplet, query: &Query) -> Result<u64> {
        let of_tail: Vec<Vec<String>> = query
            .all_of
            .iter()
            .filter(|clause| clause.iter().any(|word| has_words(&triplet.tail, word)))
            .cloned()
            .collect();
        if of_tail.is_empty() {
            return Ok(0);
        }
        let count = self.corpus.count_words(&of_tail, &self.options, None)?;
        Ok(count.map_or(0, |count| count.count))
    }

    /// Makes and counts the twins.
    fn pairs(&mut self, drawn: &[DrawnFact], seed: u64) -> Result<FoundPairs> {
        let facts: Vec<CorpusFact> = drawn.iter().map(|drawn| drawn.fact.clone()).collect();
        let twins = make_twins(&facts, seed);
        let mut found = FoundPairs {
            pairs: Vec::new(),
            without_twin: facts.len() - twins.len(),
            maybe_true: 0,
        };
        for batch in twins.chunks(BATCH) {
            let sentences =
                batch.iter().map(|twin| (twin.sentence.as_str(), vec![twin.triplet.clone()]));
            let decided = self.queries(sentences.collect())?;
            for (twin, counted) in batch.iter().zip(decided) {
                let DrawnFact { document, fact } = &drawn[twin.fact];
                let Some(CountedFact { query, .. }) = counted else {
                    found.without_twin += 1;
                    continue;
                };
                match self.corpus.matches_in(document, &query.all_of, &self.options)? {
                    Some((twin_count, 0)) => found.pairs.push(TwinPair {
                        fact: fact.clone(),
                        twin: twin.clone(),
                        twin_query: query.to_string(),
                        twin_count,
                    }),
                    Some(_) => found.maybe_true += 1,
                    None => found.without_twin += 1,
                }
            }
        }
        Ok(found)
    }
}

/// True if a text has the words of a query's word, one after another.
fn has_words(text: &str, word: &str) -> bool {
    let wanted = words_of(word);
    let words = words_of(text);
    !wanted.is_empty() && words.windows(wanted.len()).any(|run| run == wanted)
}

/// Returns the words of a text in lower case, without punctuation.
fn words_of(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn save(
    out: &Path,
    result: &CorpusResult,
    files: &[(String, String)],
    rows: &[SheetRow],
) -> Result<()> {
    saved::save(out, result, &result.calibration.calibration, NAMES, files)?;
    Ok(write_sheet(&out.join(SHEET), rows)?)
}

fn show(result: &CorpusResult) {
    let CorpusResult { calibration, sentences, without_twin, maybe_true, .. } = result;
    let CorpusCalibration { calibration, auc, by_kind, pairs } = calibration;
    output::line(format_args!(
        "{pairs} facts of {sentences} sentences, counted without their own documents, and as many \
         false twins"
    ));
    output::line(format_args!(
        "left out: {without_twin} facts without a like tail to exchange, {maybe_true} twins whose \
         words are together in the fact's document"
    ));
    output::table(
        ["count", NAMES[0], "of", NAMES[1], "95 %"],
        calibration.buckets.iter().map(|bucket| {
            let [n, share, interval] = cells(&bucket.share);
            [bucket.bucket.to_string(), bucket.share.correct.to_string(), n, share, interval]
        }),
    );
    output::line(calibration.summary());
    let mut rows = Vec::new();
    for kind in by_kind {
        let name = format!("{:?}", kind.kind).to_lowercase();
        rows.push([name, kind.pairs.to_string(), kind.auc.to_string()]);
    }
    if let Some(auc) = auc {
        rows.push(["all".to_owned(), pairs.to_string(), auc.to_string()]);
    }
    output::table(["tail", "pairs", "AUC (95 %)"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_has_whole_words_of_a_query() {
        assert!(has_words("the Kingdom of Albania", "Albania") && has_words("U.S. Navy", "U.S."));
        assert!(has_words("A OR B", "A OR B") && has_words("rome", "Rome"));
        assert!(!has_words("Albania", "Al") && !has_words("A B", "A OR B"));
        assert!(!has_words("Albania", "…") && !has_words("", "Albania"));
    }
}
