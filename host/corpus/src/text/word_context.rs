//! The ids of a word in running text, after a space.
//!
//! Tokenizers mark the start of a word in many ways, and one form of `tokenizer.json` does not show
//! which: a mark may come from a normalizer, a pre-tokenizer or both, and another component may
//! remove it. So words of the vocabulary are encoded alone, after a space, and between two words.
//! The last are the ids of running text. The simplest form with the same ids is then used for
//! queries.

use std::collections::HashMap;

use tokenizers::Tokenizer;

use crate::error::{Error, Result};
use crate::text::bpe_cache::{MARK, MARK_CHAR};

/// Spelling of a space in byte-level vocabularies.
const BYTE_LEVEL_SPACE: char = 'Ġ';
/// Largest number of single words, and of groups of words, that are encoded.
const MAX_PROBES: usize = 64;
/// Largest number of words that are tried as neighbours.
const MAX_NEIGHBOURS: usize = 4;

/// The text before a word that gives the word's ids in running text.
#[derive(Debug, Clone)]
pub(super) enum WordContext {
    /// No text.
    Alone {
        /// True if the tokenizer prepends `▁` to a text, except to one that begins with a space.
        omits_mark_before_space: bool,
    },
    /// A space, whose mark belongs to the word.
    Space,
    /// A word and a space. The ids of the word before are removed.
    Word(Neighbour),
}

/// A word that is put before another.
#[derive(Debug, Clone)]
pub(super) struct Neighbour {
    word: String,
    ids: Vec<u32>,
}

/// A text and its ids between two words.
struct Probe<'p> {
    text: &'p str,
    ids: Vec<u32>,
}

impl WordContext {
    /// Finds the context of a tokenizer. The error says why there is none.
    pub(super) fn find(
        tokenizer: &Tokenizer,
        vocabulary: HashMap<String, u32>,
    ) -> Result<Self, String> {
        let texts = probe_texts(vocabulary);
        let mut problem = "its vocabulary has no word of letters or digits".to_owned();
        for word in texts.iter().filter(|text| !text.contains(' ')).take(MAX_NEIGHBOURS) {
            let Ok(ids) = encode(tokenizer, word) else { continue };
            let neighbour = Neighbour { word: word.clone(), ids };
            match neighbour.probe(tokenizer, &texts) {
                Ok(probes) if probes.is_empty() => {}
                Ok(probes) => return Ok(Self::simplest(tokenizer, &probes, neighbour)),
                Err(found) => problem = found,
            }
        }
        Err(problem)
    }

    fn simplest(tokenizer: &Tokenizer, probes: &[Probe<'_>], neighbour: Neighbour) -> Self {
        let mut alone = true;
        let mut after_space = true;
        let mut is_marked = true;
        for Probe { text, ids } in probes {
            alone &= encode(tokenizer, text).is_ok_and(|found| found == *ids);
            after_space &= encode(tokenizer, &format!(" {text}")).is_ok_and(|found| found == *ids);
            let first = ids.first().and_then(|&id| tokenizer.id_to_token(id));
            is_marked &= first.is_some_and(|piece| piece.starts_with(MARK));
        }
        if alone {
            Self::Alone { omits_mark_before_space: after_space && is_marked }
        } else if after_space {
            Self::Space
        } else {
            Self::Word(neighbour)
        }
    }
}

impl Neighbour {
    /// Encodes a word after this one, and returns the word's ids.
    pub(super) fn encode(&self, tokenizer: &Tokenizer, word: &str) -> Result<Vec<u32>> {
        let ids = encode(tokenizer, &format!("{} {word}", self.word))?;
        let own = ids.strip_prefix(self.ids.as_slice());
        own.map(<[u32]>::to_vec).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "failed to tokenise {word:?}: its tokens depend on the word before it"
            ))
        })
    }

    /// Encodes texts between this word and itself. Texts that cannot be encoded are left out. Fails
    /// if the ids of a text depend on the words next to it.
    fn probe<'p>(
        &self,
        tokenizer: &Tokenizer,
        texts: &'p [String],
    ) -> Result<Vec<Probe<'p>>, String> {
        let mut probes = Vec::new();
        for text in texts {
            let word = &self.word;
            let Ok(between) = encode(tokenizer, &format!("{word} {text} {word}")) else { continue };
            let mut of_words = Vec::new();
            for part in text.split(' ') {
                let ids = self.encode(tokenizer, part).map_err(|error| error.to_string())?;
                of_words.extend(ids);
            }
            if !between
                .strip_prefix(self.ids.as_slice())
                .is_some_and(|ids| ids.starts_with(&of_words))
            {
                return Err(format!(
                    "in {:?}, the tokens of a word depend on the words next to it",
                    format!("{word} {text} {word}")
                ));
            }
            if !of_words.is_empty() {
                probes.push(Probe { text, ids: of_words });
            }
        }
        Ok(probes)
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    match tokenizer.encode_fast(text, false) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(Error::not_tokenised(error)),
    }
}

/// Returns words of a vocabulary, evenly spaced by id, and groups of words that are one token.
fn probe_texts(vocabulary: HashMap<String, u32>) -> Vec<String> {
    let mut pieces: Vec<(u32, String)> = Vec::with_capacity(vocabulary.len());
    for (piece, id) in vocabulary {
        pieces.push((id, piece));
    }
    pieces.sort_unstable();
    let mut words = Vec::new();
    let mut groups = Vec::new();
    for (_, piece) in pieces {
        let spaced = piece.replace([MARK_CHAR, BYTE_LEVEL_SPACE], " ");
        let text = spaced.trim().trim_start_matches("##").trim_end_matches("</w>");
        // Runs of spaces and line breaks are no words, though `Ċ`, a byte-level line break, is a
        // letter.
        if text.split(' ').any(|word| !word.chars().all(char::is_alphanumeric) || word.is_empty()) {
            continue;
        }
        let list = if text.contains(' ') { &mut groups } else { &mut words };
        list.push(text.to_owned());
    }
    let mut texts = evenly_spaced(words);
    texts.extend(evenly_spaced(groups));
    texts
}

fn evenly_spaced(texts: Vec<String>) -> Vec<String> {
    let step = texts.len().div_ceil(MAX_PROBES).max(1);
    texts.into_iter().step_by(step).collect()
}
