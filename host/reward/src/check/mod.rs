//! Finds the sentences of a text that the corpus does not support.
//!
//! The test is QuCo-RAG's, in two stages. A question is about rare entities if they occur seldom on
//! average. A sentence is unsupported if head and tail of a claim never occur together, or if an
//! entity that is named alone is rare. The rule of the settings scores the same sentences, and may
//! decide in place of the test.

mod support;

use anyhow::{Context, Result, bail};
use corver_core::language::bare_claim;
use corver_core::split::split_text;
use corver_core::{
    Claim, Completion, ExtractorInput, GivenTriplets, Lookup, Query, Section, Sentence,
    SentenceScorer, SentenceVerdict,
};
use corver_corpus::MatchPassage;
use serde::{Deserialize, Serialize};

use crate::Scorer;

pub use support::QuestionCheck;

/// Text to check against the corpus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Sentences to check, as written.
    pub text: String,
    /// Question that the text answers; empty if there is none.
    #[serde(default)]
    pub question: String,
    /// Triplets of every sentence, and of the question. `None`: the extractor reads them.
    pub triplets: Option<GivenTriplets>,
}

/// Text after the check.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedText {
    /// Check of the question; `None` if the text has none.
    pub question: Option<QuestionCheck>,
    /// Sentences in the order of the text.
    pub sentences: Vec<CheckedSentence>,
    /// Number of unsupported sentences.
    pub unsupported: usize,
}

/// Sentence after the check.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedSentence {
    /// Sentence as the text has it.
    pub text: String,
    /// Result of the check.
    pub status: Status,
    /// Claims of the sentence; empty if it was not tested.
    pub claims: Vec<CheckedClaim>,
    /// Verdict of the rule in the settings.
    pub rule: SentenceVerdict,
}

/// Result of the check of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The corpus supports every claim.
    Supported,
    /// The corpus does not support a claim.
    Unsupported,
    /// The sentence states nothing that the corpus can count.
    NoClaim,
    /// The sentence follows a denial or a summary, at which the test ends.
    NotTested,
}

/// Claim of a sentence, with its count in the corpus.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedClaim {
    /// Subject of the claim.
    pub head: String,
    /// Relation between head and tail.
    pub relation: String,
    /// Object of the claim; `None` if it names one entity.
    pub tail: Option<String>,
    /// Query and count: head and tail together, or the head alone.
    #[serde(flatten)]
    pub lookup: Lookup,
    /// True if the count reaches its threshold; `None` if the corpus has no count.
    pub supported: Option<bool>,
    /// Passages that match a supported claim, or else passages about its head.
    pub passages: Vec<MatchPassage>,
}

impl Scorer {
    /// Checks texts together, with up to `passages` passages for each claim.
    ///
    /// # Errors
    /// If a part fails, or if passages are requested and the index is on a server.
    pub fn check(&mut self, texts: &[Text], passages: usize) -> Result<Vec<CheckedText>> {
        let split_texts = self.split_and_extract(texts)?;
        let verdicts = self.score_sentences(texts, &split_texts)?;
        let mut lookups = self.look_up(&split_texts)?.into_iter();
        let settings = self.check;
        let mut checked_texts = Vec::with_capacity(texts.len());
        for (split, verdicts_of_text) in split_texts.into_iter().zip(verdicts) {
            let question = split.entities.map(|entities| {
                let entity_lookups = lookups.by_ref().take(entities.len()).collect();
                QuestionCheck::new(entity_lookups, &settings)
            });
            let mut sentences = Vec::with_capacity(split.sentences.len());
            for (sentence, rule) in split.sentences.into_iter().zip(verdicts_of_text) {
                let mut claims = Vec::with_capacity(sentence.tested_claims.len());
                for claim in sentence.tested_claims {
                    let lookup = lookups.next().expect("every tested claim was looked up");
                    let mut checked = support::check_claim(&settings, claim, lookup);
                    if passages > 0 {
                        self.add_passages(&mut checked, passages)?;
                    }
                    claims.push(checked);
                }
                let status = support::decide(settings.by, sentence.is_tested, &claims, &rule);
                sentences.push(CheckedSentence { text: sentence.text, status, claims, rule });
            }
            let unsupported =
                sentences.iter().filter(|sentence| sentence.status == Status::Unsupported).count();
            checked_texts.push(CheckedText { question, sentences, unsupported });
        }
        Ok(checked_texts)
    }

    /// Splits texts into sentences, and extracts the claims of sentences and questions.
    fn split_and_extract(&self, texts: &[Text]) -> Result<Vec<SplitText>> {
        let sentences: Vec<Vec<&str>> =
            texts.iter().map(|text| split_text(&text.text, self.checked_text())).collect();
        let mut claims = self.claims(texts, &sentences)?.into_iter();
        let mut split_texts = Vec::with_capacity(texts.len());
        for (text, sentences_of_text) in texts.iter().zip(&sentences) {
            let mut entities = None;
            if !text.question.is_empty() {
                entities = Some(support::entities(claims.next().expect(ONE_REPLY_EACH)));
            }
            let num_tested = support::num_tested(sentences_of_text);
            let mut split_sentences = Vec::with_capacity(sentences_of_text.len());
            for (number, sentence) in sentences_of_text.iter().enumerate() {
                let own_claims = claims.next().expect(ONE_REPLY_EACH);
                let is_tested = number < num_tested;
                split_sentences.push(SplitSentence {
                    text: (*sentence).to_owned(),
                    is_tested,
                    tested_claims: if is_tested { own_claims.clone() } else { Vec::new() },
                    claims: own_claims,
                });
            }
            split_texts.push(SplitText { entities, sentences: split_sentences });
        }
        Ok(split_texts)
    }

    /// Returns the claims of each text: those of its question, if it has one, and those of its
    /// sentences.
    fn claims(&self, texts: &[Text], sentences: &[Vec<&str>]) -> Result<Vec<Vec<Claim>>> {
        let mut inputs = Vec::new();
        for (text, sentences_of_text) in texts.iter().zip(sentences) {
            let start = inputs.len();
            if !text.question.is_empty() {
                inputs.push((text.question.as_str(), "", text.triplets.as_ref()));
            }
            for sentence in sentences_of_text {
                inputs.push((sentence, text.question.as_str(), text.triplets.as_ref()));
            }
            if self.is_demo_extractor && text.triplets.is_none() {
                check_demo_names(inputs[start..].iter().map(|(sentence, ..)| *sentence))?;
            }
        }
        let mut to_extract = Vec::new();
        for &(sentence, question, triplets) in &inputs {
            if triplets.is_none() {
                to_extract.push(ExtractorInput { sentence, question });
            }
        }
        let mut replies = Vec::new().into_iter();
        if !to_extract.is_empty() {
            let Some(extractor) = &self.extractor else {
                bail!(
                    "a text has no triplets, and no extractor is named; --extractor DIR|NAME \
                     names one"
                );
            };
            let extracted = extractor.claims(&to_extract);
            replies = extracted.context("extracting what the text states")?.into_iter();
        }
        let language = self.checked_text().language;
        let mut claims = Vec::with_capacity(inputs.len());
        for (sentence, _, triplets) in inputs {
            let mut own_claims = Vec::new();
            let found: Vec<Claim> = match triplets {
                Some(given) => given.of(sentence)?.iter().cloned().map(Claim::Fact).collect(),
                None => replies.next().expect(ONE_REPLY_EACH),
            };
            for claim in found {
                own_claims.extend(bare_claim(claim, language));
            }
            claims.push(own_claims);
        }
        Ok(claims)
    }

    /// Returns the rule's verdict on every sentence of every text.
    fn score_sentences(
        &mut self,
        texts: &[Text],
        split_texts: &[SplitText],
    ) -> Result<Vec<Vec<SentenceVerdict>>> {
        let sentences: Vec<Vec<Sentence>> =
            split_texts.iter().map(SplitText::to_sentences).collect();
        let mut completions = Vec::new();
        for (Text { text, question, .. }, sentences_of_text) in texts.iter().zip(&sentences) {
            // A rule receives no completion without sentences.
            if !sentences_of_text.is_empty() {
                completions.push(Completion {
                    question,
                    text,
                    sentences: sentences_of_text,
                    ..Completion::default()
                });
            }
        }
        let mut scored = self
            .rules
            .score(&completions, &mut self.backends)
            .map_err(anyhow::Error::from_boxed)
            .context("scoring the sentences")?
            .into_iter();
        let mut verdicts = Vec::with_capacity(texts.len());
        for sentences_of_text in &sentences {
            let own_verdicts = if sentences_of_text.is_empty() { None } else { scored.next() };
            verdicts.push(own_verdicts.unwrap_or_default());
        }
        Ok(verdicts)
    }

    /// Counts the entities of questions and the tested claims, in the order of the texts.
    fn look_up(&mut self, split_texts: &[SplitText]) -> Result<Vec<Lookup>> {
        let mut queries = Vec::new();
        for split in split_texts {
            for entity in split.entities.iter().flatten() {
                queries.push(Query::new([[entity]]));
            }
            for sentence in &split.sentences {
                queries.extend(sentence.tested_claims.iter().map(support::query));
            }
        }
        let counts =
            self.backends.count(&queries).map_err(anyhow::Error::from_boxed).context("counting")?;
        Ok(queries.into_iter().zip(counts).map(|(query, count)| Lookup { query, count }).collect())
    }

    fn add_passages(&self, claim: &mut CheckedClaim, limit: usize) -> Result<()> {
        let head = [vec![claim.head.clone()]];
        let words = if claim.supported == Some(true) {
            claim.lookup.query.all_of.as_slice()
        } else {
            &head
        };
        claim.passages = self.passages.find(words, limit)?;
        Ok(())
    }
}

/// Refuses a text without a name of the demo's world: the demo's extractor knows no others, and its
/// claims about them would be wrong.
fn check_demo_names<'a>(mut inputs: impl Iterator<Item = &'a str>) -> Result<()> {
    let world = corver_demo::demo_world();
    let names_world =
        |input: &str| world.entities().iter().any(|entity| input.contains(&entity.name));
    if !inputs.any(names_world) {
        bail!(
            "failed to check the text: it names nothing of the demo's fictional world, and the \
             demo's extractor and corpus know nothing else; --index DIR and --extractor DIR|NAME \
             name your own"
        );
    }
    Ok(())
}

const ONE_REPLY_EACH: &str = "the extractor returns one reply for each input";

/// Text split into sentences, with extracted claims.
struct SplitText {
    /// Entities of the question; `None` if the text has none.
    entities: Option<Vec<String>>,
    sentences: Vec<SplitSentence>,
}

struct SplitSentence {
    text: String,
    is_tested: bool,
    /// Claims that the test looks up; empty after a denial or a summary.
    tested_claims: Vec<Claim>,
    /// Claims that the rule receives.
    claims: Vec<Claim>,
}

impl SplitText {
    /// Returns the sentences as a rule receives them: in a text without think and answer blocks.
    fn to_sentences(&self) -> Vec<Sentence> {
        let mut sentences = Vec::with_capacity(self.sentences.len());
        for sentence in &self.sentences {
            let mut triplets = Vec::new();
            for claim in &sentence.claims {
                if let Claim::Fact(triplet) = claim {
                    triplets.push(triplet.clone());
                }
            }
            sentences.push(Sentence {
                text: sentence.text.clone(),
                section: Section::Body,
                span: None,
                triplets,
            });
        }
        sentences
    }
}
