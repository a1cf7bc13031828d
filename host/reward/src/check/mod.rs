//! Any text → which of its sentences the corpus does not support.
//!
//! The test is QuCo-RAG's, in two stages. A question is about rare entities where they occur seldom
//! on average. A sentence is unsupported where head and tail of a claim never occur together, or an
//! entity that is named alone is rare. The rule of the settings judges the same sentences, and may
//! decide in the test's place.

mod support;

use anyhow::{Context, Result};
use corver_core::sentence::split_sentences;
use corver_core::triplet::claims_from_reply;
use corver_core::{Claim, Completion, Lookup, Query, Section, Sentence, SentenceScorer, Verdict};
use corver_corpus::Passage;
use serde::{Deserialize, Serialize};

use crate::Scorer;

pub use support::QuestionCheck;

/// A text to check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The text.
    pub text: String,
    /// What it answers; empty where it answers nothing.
    #[serde(default)]
    pub question: String,
}

/// What was found in a text.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    /// Of its question; `None` where there is none.
    pub question: Option<QuestionCheck>,
    /// In the order of the text.
    pub sentences: Vec<CheckedSentence>,
    /// Sentences that are unsupported.
    pub unsupported: usize,
}

/// A sentence, and what speaks for it.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedSentence {
    /// The sentence.
    pub text: String,
    /// What was decided.
    pub status: Status,
    /// What it states; empty where it was not tested.
    pub claims: Vec<CheckedClaim>,
    /// What the rule of the settings says of it.
    pub rule: Verdict,
}

/// What was decided of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing speaks against it.
    Supported,
    /// The corpus does not speak for it.
    Unsupported,
    /// It states nothing that could be counted.
    NoClaim,
    /// It stands behind a denial or a summary, at which the test ends.
    NotTested,
}

/// One claim, and how often the corpus makes it.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedClaim {
    /// Subject.
    pub head: String,
    /// Relation.
    pub relation: String,
    /// Object; `None` where the claim names one entity.
    pub tail: Option<String>,
    /// Head and tail together, or the head alone.
    #[serde(flatten)]
    pub lookup: Lookup,
    /// `None` where the corpus has no answer.
    pub supported: Option<bool>,
    /// Of a supported claim, what matches it; of another, what the corpus says of the head.
    pub passages: Vec<Passage>,
}

impl Scorer {
    /// Checks texts together, with up to `passages` passages for each claim.
    ///
    /// # Errors
    /// Where a part fails, or the index is on a server and passages are asked for.
    pub fn check(&mut self, texts: &[Text], passages: usize) -> Result<Vec<Checked>> {
        let mut read = self.read(texts)?;
        let all_verdicts = self.judge(texts, &read)?;
        let lookups = self.look_up(&read)?;
        let mut lookups = lookups.into_iter();
        let settings = self.check;
        let mut all = Vec::with_capacity(texts.len());
        for (one, verdicts) in read.iter_mut().zip(all_verdicts) {
            let asked = one.entities.as_ref().map_or(0, Vec::len);
            let of_question = lookups.by_ref().take(asked).collect();
            let question =
                one.entities.is_some().then(|| QuestionCheck::of(of_question, &settings));
            let mut sentences = Vec::with_capacity(one.sentences.len());
            for (sentence, rule) in one.sentences.drain(..).zip(verdicts) {
                let found = sentence.claims.len();
                let claims = sentence.claims.into_iter().zip(lookups.by_ref().take(found));
                let mut claims: Vec<CheckedClaim> =
                    claims.map(|(claim, lookup)| support::test(&settings, claim, lookup)).collect();
                if passages > 0 {
                    claims.iter_mut().try_for_each(|claim| self.show(claim, passages))?;
                }
                let status = support::decide(settings.by, sentence.is_tested, &claims, &rule);
                sentences.push(CheckedSentence { text: sentence.text, status, claims, rule });
            }
            let unsupported =
                sentences.iter().filter(|sentence| sentence.status == Status::Unsupported).count();
            all.push(Checked { question, sentences, unsupported });
        }
        Ok(all)
    }

    /// Cuts texts into sentences and extracts what they and their questions state.
    fn read(&self, texts: &[Text]) -> Result<Vec<Read>> {
        let sentences: Vec<Vec<&str>> =
            texts.iter().map(|text| split_sentences(&text.text).collect()).collect();
        let asked = texts.iter().zip(&sentences).flat_map(|(text, sentences)| {
            let question = Some(text.question.as_str()).filter(|question| !question.is_empty());
            question.into_iter().chain(sentences.iter().copied())
        });
        let replies = self
            .extractor
            .replies(&asked.collect::<Vec<_>>())
            .context("extracting what the text states")?;
        let mut replies = replies.iter().map(|reply| claims_from_reply(reply));
        let mut next = || replies.next().expect("the extractor answers every sentence");
        let read = texts.iter().zip(&sentences).map(|(text, sentences)| {
            let entities = (!text.question.is_empty()).then(|| support::entities(next()));
            let tested = support::tested(sentences);
            let of_text = sentences.iter().enumerate().map(|(n, sentence)| {
                let all = next();
                let is_tested = n < tested;
                let claims = if is_tested { all.clone() } else { Vec::new() };
                SentenceRead { text: (*sentence).to_owned(), is_tested, claims, all }
            });
            Read { entities, sentences: of_text.collect() }
        });
        Ok(read.collect())
    }

    /// What the rule says of every sentence.
    fn judge(&mut self, texts: &[Text], read: &[Read]) -> Result<Vec<Vec<Verdict>>> {
        let sentences: Vec<Vec<Sentence>> = read.iter().map(Read::as_completion).collect();
        let with_sentences = texts.iter().zip(&sentences).filter(|(_, cut)| !cut.is_empty());
        let completions = with_sentences.map(|(Text { text, question }, cut)| Completion {
            question,
            text,
            sentences: cut,
            ..Completion::default()
        });
        let completions: Vec<_> = completions.collect();
        let verdicts = self.rules.score(&completions, &mut self.backends);
        let mut verdicts =
            verdicts.map_err(anyhow::Error::from_boxed).context("asking the rule")?.into_iter();
        let of_each = sentences
            .iter()
            .map(|sentences| if sentences.is_empty() { None } else { verdicts.next() });
        Ok(of_each.map(Option::unwrap_or_default).collect())
    }

    /// The counts of entities and claims, in the order of the texts.
    fn look_up(&mut self, read: &[Read]) -> Result<Vec<Lookup>> {
        let queries = read.iter().flat_map(|one| {
            let entities = one.entities.iter().flatten().map(|entity| Query::new([[entity]]));
            entities.chain(
                one.sentences
                    .iter()
                    .flat_map(|sentence| sentence.claims.iter().map(support::query)),
            )
        });
        let queries: Vec<Query> = queries.collect();
        let counts =
            self.backends.count(&queries).map_err(anyhow::Error::from_boxed).context("counting")?;
        Ok(queries.into_iter().zip(counts).map(|(query, count)| Lookup { query, count }).collect())
    }

    fn show(&self, claim: &mut CheckedClaim, passages: usize) -> Result<()> {
        let head = [vec![claim.head.clone()]];
        let words = if claim.supported == Some(true) {
            claim.lookup.query.all_of.as_slice()
        } else {
            &head
        };
        claim.passages = self.passages.of(words, passages)?;
        Ok(())
    }
}

/// A text that was read.
struct Read {
    /// Of its question, where it has one.
    entities: Option<Vec<String>>,
    sentences: Vec<SentenceRead>,
}

struct SentenceRead {
    text: String,
    is_tested: bool,
    /// What is tested.
    claims: Vec<Claim>,
    /// What the rule sees.
    all: Vec<Claim>,
}

impl Read {
    /// As a rule sees it: a text without think and answer blocks.
    fn as_completion(&self) -> Vec<Sentence> {
        let triplet = |claim: &Claim| match claim {
            Claim::Fact(triplet) => Some(triplet.clone()),
            Claim::Mention { .. } => None,
        };
        let sentence = |sentence: &SentenceRead| Sentence {
            text: sentence.text.clone(),
            section: Section::Body,
            span: None,
            triplets: sentence.all.iter().filter_map(triplet).collect(),
        };
        self.sentences.iter().map(sentence).collect()
    }
}
