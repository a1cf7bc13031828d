//! A word cache for tokenizers of the Llama 2 family, which otherwise merge a whole document as one word.
//!
//! No piece of such a vocabulary holds a `▁` after another character, so no merge ever joins the end of one word with the
//! start of the next: each word can be tokenised by itself, and most words have been seen before. The ids are the
//! library's own; only the way to them is shorter.

use std::collections::HashMap;
use std::sync::RwLock;

use tokenizers::Model;

use crate::error::{Error, Result};

pub(crate) const MARK: &str = "\u{2581}";

/// Locks are taken for one shard of the cache at a time.
const SHARDS: usize = 64;
/// Words remembered per shard. Text has new words for ever; the frequent ones come first.
const WORDS_PER_SHARD: usize = 1 << 13;
/// Longer words hardly come twice.
const LONGEST_WORD: usize = 48;

/// The ids of words already seen, with the spaces before them.
type Known = HashMap<Box<str>, Box<[u32]>>;

#[derive(Debug)]
pub(crate) struct WordCache {
    shards: Vec<RwLock<Known>>,
    /// Texts that the library cuts out before it looks at words.
    added_tokens: Vec<String>,
}

impl WordCache {
    /// A cache, if the tokenizer is one whose words do not influence each other; `config` is its `tokenizer.json`.
    pub(crate) fn new(config: &serde_json::Value, tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let (pre_tokenizer, model) = (&config["pre_tokenizer"], &config["model"]);
        let marks_words = config["normalizer"].is_null()
            && pre_tokenizer["type"] == "Metaspace"
            && pre_tokenizer["replacement"] == MARK
            && matches!(pre_tokenizer["prepend_scheme"].as_str(), Some("first" | "always"))
            && pre_tokenizer["split"] == false;
        let plain_merges = model["type"] == "BPE"
            && model["dropout"].as_f64().is_none_or(|dropout| dropout == 0.0)
            && model["ignore_merges"] != true
            && model["continuing_subword_prefix"].is_null()
            && model["end_of_word_suffix"].is_null();
        // With all 256 bytes in the vocabulary there is no unknown token, which could join across words.
        let knows_every_byte = model["byte_fallback"] == true
            && (0..=255_u8).all(|b| tokenizer.token_to_id(&format!("<{b:#04X}>")).is_some());
        if !(marks_words && plain_merges && knows_every_byte) {
            return None;
        }
        let vocabulary = tokenizer.get_vocab(false);
        if vocabulary.keys().any(|piece| piece.trim_start_matches(MARK).contains(MARK)) {
            return None;
        }
        let added_tokens = tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Some(Self { shards, added_tokens })
    }

    /// The ids of a text that a `▁` goes before; `None` where it holds an added token and the library must see all of it.
    pub(crate) fn encode(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Option<Vec<u32>>> {
        if self.added_tokens.iter().any(|token| text.contains(token)) {
            return Ok(None);
        }
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut words = Words { rest: text };
        if let Some(first) = words.next() {
            self.encode_word(tokenizer, &format!(" {first}"), &mut ids)?;
        }
        for word in words {
            self.encode_word(tokenizer, word, &mut ids)?;
        }
        Ok(Some(ids))
    }

    /// Appends the ids of a word with the spaces before it.
    fn encode_word(&self, tokenizer: &tokenizers::Tokenizer, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        let shard = (word.len() <= LONGEST_WORD).then(|| &self.shards[shard_of(word)]);
        if let Some(shard) = shard {
            // A poisoned lock guards nothing half-done here: entries are inserted whole.
            let known = shard.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(known) = known.get(word) {
                ids.extend_from_slice(known);
                return Ok(());
            }
        }
        let tokens = tokenizer.get_model().tokenize(&word.replace(' ', MARK));
        let tokens = tokens.map_err(|e| Error::Encode { message: e.to_string() })?;
        let start = ids.len();
        ids.extend(tokens.iter().map(|token| token.id));
        if let Some(shard) = shard {
            let mut known = shard.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            if known.len() < WORDS_PER_SHARD {
                known.insert(word.into(), ids[start..].into());
            }
        }
        Ok(())
    }
}

/// FNV-1a: few instructions for the few bytes of a word.
fn shard_of(word: &str) -> usize {
    let hash = word.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) as usize % SHARDS
}

/// Cuts a text before every run of spaces (or of `▁`, which is the same to these tokenizers).
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let is_mark = |c: char| c == ' ' || MARK.starts_with(c);
        let marks_end = self.rest.find(|c| !is_mark(c)).unwrap_or(self.rest.len());
        let end = self.rest[marks_end..].find(is_mark).map_or(self.rest.len(), |at| marks_end + at);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_keep_the_spaces_before_them() {
        let words = |text| Words { rest: text }.collect::<Vec<_>>();
        assert_eq!(words("a bc  d\u{2581}e "), ["a", " bc", "  d", "\u{2581}e", " "]);
        assert_eq!(words("  "), ["  "]);
        assert_eq!(words(""), [] as [&str; 0]);
    }

    /// A little Llama: all bytes, a few letters, merges within words and in runs of spaces.
    fn config(more: &[&str]) -> serde_json::Value {
        let merges = ["▁ ▁", "▁▁ ▁▁", "▁ a", "a b", "▁a b", "b b", "▁▁ a", "é b"];
        let mut pieces: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
        pieces.extend((0..=255_u8).map(|byte| format!("<{byte:#04X}>")));
        pieces.extend(["▁", "a", "b", "é"].map(String::from));
        pieces.extend(merges.iter().chain(more).map(|merge| merge.replace(' ', "")));
        let vocab: serde_json::Map<String, serde_json::Value> =
            pieces.into_iter().enumerate().map(|(id, piece)| (piece, id.into())).collect();
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "decoder": null,
            "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                "vocab": vocab, "merges": merges.iter().chain(more).collect::<Vec<_>>()},
        })
    }

    fn load(config: &serde_json::Value) -> tokenizers::Tokenizer {
        tokenizers::Tokenizer::from_bytes(config.to_string()).unwrap()
    }

    #[test]
    fn a_vocabulary_that_joins_words_gets_no_cache() {
        let joins = config(&["b ▁"]);
        assert!(WordCache::new(&joins, &load(&joins)).is_none());
        let mut split = config(&[]);
        split["pre_tokenizer"]["split"] = true.into();
        assert!(WordCache::new(&split, &load(&split)).is_none());
    }

    proptest! {
        #[test]
        fn the_cache_gives_the_librarys_ids(texts in proptest::collection::vec("([ab é\n▁]|<s>|世){0,12}", 1..20)) {
            let config = config(&[]);
            let tokenizer = load(&config);
            let cache = WordCache::new(&config, &tokenizer).unwrap();
            for text in texts {
                // The library leaves away the mark before a text that begins with one; see `tokenizer.rs`.
                let marked = if text.starts_with([' ', '\u{2581}']) { format!(" {text}") } else { text.clone() };
                let expected = tokenizer.encode_fast(marked, false).unwrap().get_ids().to_vec();
                match cache.encode(&tokenizer, &text).unwrap() {
                    Some(ids) => prop_assert_eq!(ids, expected, "{:?}", text),
                    None => prop_assert!(text.contains("<s>")),
                }
            }
        }
    }
}
