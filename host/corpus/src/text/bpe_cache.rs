//! A cache of tokenised parts for tokenizers of the Llama 2 family, which otherwise merge a complete
//! document as one word.
//!
//! Byte-pair encoding starts from single characters and merges neighbours, so a token that spans
//! characters `a` and `b` contains `ab`. If no result of a merge contains `ab`, no token spans the
//! boundary between them, the texts on both sides do not influence each other, and the text can be
//! cut there. English text is cut into words, numbers into digits, and most punctuation into single
//! characters; nearly all of these parts are in the cache. The ids are always those of the library.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use tokenizers::Model;

use crate::error::{Error, Result};

pub(crate) const MARK: &str = "\u{2581}";
pub(crate) const MARK_CHAR: char = '\u{2581}';

/// Largest number of parts in one part cache. Nothing is evicted: frequent parts come early.
const MAX_PARTS: usize = 1 << 18;
/// Length of the longest cached part, bytes. Longer parts hardly occur twice.
const MAX_PART_BYTES: usize = 15;

/// A tokenizer's cache of parts. Threads share it.
#[derive(Debug)]
pub(crate) struct BpeCache {
    char_pairs: CharPairs,
    /// Texts that the library extracts before it tokenises the rest.
    added_tokens: Vec<String>,
    /// Part caches that no thread is using. A thread takes one for a complete text, so that it needs
    /// no lock within it.
    free: Mutex<Vec<PartCache>>,
}

impl BpeCache {
    /// Size of a full part cache, bytes, its last growth included.
    pub(crate) const BYTES_PER_THREAD: u64 = 28 << 20;

    /// Creates a cache; `None` if the tokenizer's texts cannot be cut. `config` is its
    /// `tokenizer.json`.
    pub(crate) fn new(
        config: &serde_json::Value,
        tokenizer: &tokenizers::Tokenizer,
    ) -> Option<Self> {
        let model = &config["model"];
        let has_plain_merges = model["type"] == "BPE"
            && model["dropout"].as_f64().is_none_or(|dropout| dropout == 0.0)
            && model["ignore_merges"] != true
            && model["continuing_subword_prefix"].is_null()
            && model["end_of_word_suffix"].is_null();
        // With all 256 bytes in the vocabulary there is no unknown token, which could join across a
        // cut.
        let byte_tokens: HashSet<String> = (0..=255_u8).map(|b| format!("<{b:#04X}>")).collect();
        let has_every_byte = model["byte_fallback"] == true
            && byte_tokens.iter().all(|token| tokenizer.token_to_id(token).is_some());
        if !(only_marks_words(config) && has_plain_merges && has_every_byte) {
            return None;
        }
        let merges: Vec<(&str, &str)> =
            model["merges"].as_array()?.iter().map(parts_of_merge).collect::<Option<_>>()?;
        // A character that is not in the vocabulary becomes bytes. If bytes could merge, characters
        // would not show where.
        if merges
            .iter()
            .any(|(left, right)| byte_tokens.contains(*left) || byte_tokens.contains(*right))
        {
            return None;
        }
        let char_pairs =
            CharPairs::new(merges.iter().map(|(left, right)| format!("{left}{right}")));
        let added_tokens =
            tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        Some(Self { char_pairs, added_tokens, free: Mutex::default() })
    }

    /// Encodes a text with a `▁` before it; `None` if it contains an added token, so that the
    /// library must tokenise all of it.
    pub(crate) fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
    ) -> Result<Option<Vec<u32>>> {
        if self.added_tokens.iter().any(|token| text.contains(token)) {
            return Ok(None);
        }
        let mut ids = Vec::with_capacity(text.len() / 3);
        if text.is_empty() {
            return Ok(Some(ids));
        }
        let marked = format!(" {text}");
        let mut part_cache = self.lock().pop().unwrap_or_default();
        let mut rest = marked.as_str();
        while !rest.is_empty() {
            let length = self.char_pairs.part_length(rest);
            part_cache.encode(tokenizer, rest, length, &mut ids)?;
            rest = &rest[length..];
        }
        self.lock().push(part_cache);
        Ok(Some(ids))
    }

    /// Frees the memory of the cache.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PartCache>> {
        // Only `pop`, `push` and `clear` run under the lock, so a poisoned one is usable.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if the tokenizer prepends a `▁` to the text and replaces every space by it, and does nothing
/// else before it merges.
fn only_marks_words(config: &serde_json::Value) -> bool {
    let normalizer = &config["normalizer"];
    let pre_tokenizer = &config["pre_tokenizer"];
    let in_pre_tokenizer = normalizer.is_null()
        && pre_tokenizer["type"] == "Metaspace"
        && pre_tokenizer["replacement"] == MARK
        && matches!(pre_tokenizer["prepend_scheme"].as_str(), Some("first" | "always"))
        && pre_tokenizer["split"] == false;
    let in_normalizer = pre_tokenizer.is_null()
        && normalizer["type"] == "Sequence"
        && normalizer["normalizers"].as_array().is_some_and(|steps| match &steps[..] {
            [prepend, replace] => {
                prepend["type"] == "Prepend"
                    && prepend["prepend"] == MARK
                    && replace["type"] == "Replace"
                    && replace["pattern"]["String"] == " "
                    && replace["content"] == MARK
            }
            _ => false,
        });
    in_pre_tokenizer || in_normalizer
}

/// Returns the two parts of a merge: `["a", "b"]`, or `"a b"` in older files.
fn parts_of_merge(merge: &serde_json::Value) -> Option<(&str, &str)> {
    match merge {
        serde_json::Value::String(pair) => pair.split_once(' '),
        pair => Some((pair.get(0)?.as_str()?, pair.get(1)?.as_str()?)),
    }
}

/// The pairs of characters that are neighbours in a result of a merge. A space is equal to the `▁`
/// that replaces it.
#[derive(Debug)]
struct CharPairs {
    /// `ascii[128 * a + b]`: true if `a` and `b` are neighbours. The space represents the mark.
    ascii: Box<[bool]>,
    others: FxHashSet<(char, char)>,
}

impl CharPairs {
    fn new(pieces: impl Iterator<Item = String>) -> Self {
        let mut char_pairs =
            Self { ascii: vec![false; 128 * 128].into(), others: FxHashSet::default() };
        for piece in pieces {
            for (a, b) in piece.chars().map(unmarked).zip(piece.chars().map(unmarked).skip(1)) {
                if a.is_ascii() && b.is_ascii() {
                    char_pairs.ascii[128 * a as usize + b as usize] = true;
                } else {
                    char_pairs.others.insert((a, b));
                }
            }
        }
        char_pairs
    }

    /// Returns the length of the first part of a text, bytes.
    fn part_length(&self, text: &str) -> usize {
        let mut characters = text.char_indices().map(|(index, c)| (index, unmarked(c)));
        let mut last = characters.next().map_or(' ', |(_, c)| c);
        for (index, c) in characters {
            let joined = if last.is_ascii() && c.is_ascii() {
                self.ascii[128 * last as usize + c as usize]
            } else {
                self.others.contains(&(last, c))
            };
            if !joined {
                return index;
            }
            last = c;
        }
        text.len()
    }
}

fn unmarked(c: char) -> char {
    if c == MARK_CHAR { ' ' } else { c }
}

/// The ids of parts that one thread has tokenised.
#[derive(Debug)]
struct PartCache {
    /// From a part's [`key`] to its range in `ids`.
    ranges: FxHashMap<u128, (u32, u32)>,
    ids: Vec<u32>,
}

impl Default for PartCache {
    fn default() -> Self {
        Self { ranges: HashMap::with_hasher(FxBuildHasher), ids: Vec::new() }
    }
}

impl PartCache {
    /// Appends the ids of the first `length` bytes of a text.
    fn encode(
        &mut self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        length: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let key = (length <= MAX_PART_BYTES).then(|| key(text.as_bytes(), length));
        if let Some(key) = key
            && let Some(&(start, end)) = self.ranges.get(&key)
        {
            ids.extend_from_slice(&self.ids[start as usize..end as usize]);
            return Ok(());
        }
        let tokens = tokenizer
            .get_model()
            .tokenize(&text[..length].replace(' ', MARK))
            .map_err(Error::not_tokenised)?;
        let num_before = ids.len();
        ids.extend(tokens.iter().map(|token| token.id));
        if let Some(key) = key
            && self.ranges.len() < MAX_PARTS
        {
            let start = self.ids.len() as u32; // at most 15 ids for each of 2¹⁸ parts
            self.ids.extend_from_slice(&ids[num_before..]);
            self.ranges.insert(key, (start, self.ids.len() as u32));
        }
        Ok(())
    }
}

/// Returns the first `length` bytes (at most 15) and their number as one integer.
fn key(bytes: &[u8], length: usize) -> u128 {
    let padded = match bytes.first_chunk::<16>() {
        Some(chunk) => u128::from_le_bytes(*chunk) & ((1 << (8 * length)) - 1),
        None => bytes[..length].iter().rev().fold(0, |key, &byte| key << 8 | u128::from(byte)),
    };
    padded | (length as u128) << 120
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_splits_where_no_bpe_piece_joins() {
        let char_pairs = CharPairs::new(["▁▁", "▁ab", "é,", ",▁c"].map(String::from).into_iter());
        let parts = |mut text: &str| {
            let mut parts = Vec::new();
            while !text.is_empty() {
                let (part, rest) = text.split_at(char_pairs.part_length(text));
                parts.push(part.to_owned());
                text = rest;
            }
            parts
        };
        assert_eq!(parts("  ab\u{2581}abb c"), ["  ab", "\u{2581}ab", "b", " c"]);
        assert_eq!(parts("é, caé世世"), ["é, c", "a", "é", "世", "世"]);
        assert_eq!(parts(""), [] as [&str; 0]);
    }

    #[test]
    fn cache_keys_distinguish_text_parts() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        assert_eq!(key(text.as_bytes(), 3), key(b"abc", 3));
        assert_eq!(key(text.as_bytes(), 15), key(b"abcdefghijklmno", 15));
        assert_ne!(key(b"a\0", 2), key(b"a", 1));
    }

    /// A little Llama: all bytes, a few letters, merges within words and in runs of spaces.
    fn config(more: &[&str]) -> serde_json::Value {
        let merges = ["▁ ▁", "▁▁ ▁▁", "▁ a", "a b", "▁a b", "b b", "▁▁ a", "é b"];
        let mut pieces: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
        pieces.extend((0..=255_u8).map(|byte| format!("<{byte:#04X}>")));
        pieces.extend(["▁", "a", "b", "é", ",", "\n"].map(String::from));
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
    fn unsupported_tokenizers_get_no_bpe_cache() {
        let cache = |config: &serde_json::Value| BpeCache::new(config, &load(config));
        assert!(cache(&config(&[])).is_some());
        assert!(cache(&config(&["<0xC3> <0xA9>"])).is_none()); // bytes that merge
        let mut split = config(&[]);
        split["pre_tokenizer"]["split"] = true.into();
        assert!(cache(&split).is_none());
        let mut normalised = config(&[]);
        normalised["normalizer"] = serde_json::json!({"type": "Lowercase"});
        assert!(cache(&normalised).is_none());
    }

    proptest! {
        #[test]
        fn bpe_cache_matches_tokenizer_library(
            texts in proptest::collection::vec("([ab é\n▁,]|<s>|世|<0x0A>){0,12}", 1..20),
            joined in any::<bool>(),
            in_normalizer in any::<bool>(),
        ) {
            let more: &[&str] = if joined { &["b ▁", "b▁ a", ", \n", "é ,"] } else { &[] };
            let mut config = config(more);
            if in_normalizer {
                config["pre_tokenizer"] = serde_json::Value::Null;
                config["normalizer"] = serde_json::json!({"type": "Sequence", "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
            }
            let tokenizer = load(&config);
            let cache = BpeCache::new(&config, &tokenizer).unwrap();
            for text in texts {
                // A pre-tokenizer leaves away the mark before a text that begins with one; see
                // `tokenizer.rs`.
                let begins_marked = text.starts_with([' ', '\u{2581}']) && !in_normalizer;
                let marked = if begins_marked { format!(" {text}") } else { text.clone() };
                let expected = tokenizer.encode_fast(marked, false).unwrap().get_ids().to_vec();
                match cache.encode(&tokenizer, &text).unwrap() {
                    Some(ids) => prop_assert_eq!(ids, expected, "{:?}", text),
                    None => prop_assert!(text.contains("<s>")),
                }
            }
        }
    }
}
