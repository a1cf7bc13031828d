//! The extractor: sentences in, triplets out.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use corver_core::triplet::triplets_from_reply;
use corver_core::{PartError, Triplet};

use crate::bundle::Bundle;
use crate::decoder::{Decoder, Rows};
use crate::memo::Memo;
use crate::{Device, Result, RuntimeLibrary};

/// Sentences remembered, twice: some megabytes.
const MEMO_CAPACITY: usize = 16_384;

/// A triplet model, ready to run. Decoding is greedy.
///
/// A reply does not depend on the sentences that are decoded beside it, but for rounding: batches of different sizes
/// add in different orders, which could only ever decide between two tokens that are equally likely.
pub struct Extractor {
    bundle: Bundle,
    decoder: Decoder,
    /// The prompt before the sentence, one row.
    prefix: Rows,
    memo: Memo,
}

impl Extractor {
    /// Opens a bundle folder and runs the prompt before the sentence.
    ///
    /// # Errors
    /// A bundle that is incomplete or does not fit together, a device that is not there, a library that does not load.
    pub fn open(bundle: &Path, device: Device, runtime: &RuntimeLibrary) -> Result<Self> {
        let bundle = Bundle::read(bundle)?;
        let mut decoder = Decoder::open(&bundle, device, runtime)?;
        let mut prefix = decoder.blank()?;
        if !bundle.prefix.is_empty() {
            decoder.extend(&mut prefix, &as_input(&bundle.prefix).collect::<Vec<_>>())?;
        }
        Ok(Self { bundle, decoder, prefix, memo: Memo::new(MEMO_CAPACITY) })
    }

    /// The bundle behind it.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The model's replies as they are, one per sentence. Nothing is looked up or remembered; equal sentences are
    /// decoded once. The reply to a sentence that is too long is empty.
    ///
    /// # Errors
    /// Where the tokenizer or the graph fails.
    pub fn replies(&mut self, sentences: &[&str]) -> Result<Vec<String>> {
        let mut encoded = Vec::new();
        let mut seen = HashSet::new();
        let mut replies: HashMap<&str, String> = HashMap::new();
        for &sentence in sentences.iter().filter(|sentence| seen.insert(**sentence)) {
            match self.bundle.encode_sentence(sentence)? {
                Some(ids) => encoded.push((sentence, ids)),
                None => {
                    let limit = self.bundle.settings.max_sentence_tokens;
                    tracing::warn!(limit, sentence, "a sentence has too many tokens and is not extracted");
                }
            }
        }
        encoded.sort_by_key(|(_, ids)| ids.len());
        for batch in encoded.chunks(self.bundle.settings.batch_size) {
            let ids: Vec<&[u32]> = batch.iter().map(|(_, ids)| ids.as_slice()).collect();
            for ((sentence, _), reply) in batch.iter().zip(self.decode(&ids)?) {
                replies.insert(sentence, self.bundle.decode(&reply)?);
            }
        }
        Ok(sentences.iter().map(|sentence| replies.get(sentence).cloned().unwrap_or_default()).collect())
    }

    /// The replies' ids, one per sentence, without the stop token.
    fn decode(&mut self, sentences: &[&[u32]]) -> Result<Vec<Vec<u32>>> {
        let longest = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut replies = vec![Vec::new(); sentences.len()];
        if longest == 0 {
            return Ok(replies);
        }
        let pads: Vec<usize> = sentences.iter().map(|ids| longest - ids.len()).collect();
        let mut rows = self.decoder.select(&self.prefix, &vec![0; sentences.len()])?;
        rows.pad_next(&pads);
        let padded =
            |(ids, pad): (&&[u32], &usize)| std::iter::repeat_n(0, *pad).chain(as_input(ids)).collect::<Vec<_>>();
        let tokens: Vec<i64> = sentences.iter().zip(&pads).flat_map(padded).collect();
        let mut next = self.decoder.extend(&mut rows, &tokens)?;

        // Row of the batch → sentence; `None` once its reply is complete.
        let mut open: Vec<Option<usize>> = (0..sentences.len()).map(Some).collect();
        loop {
            for (row, &token) in open.iter_mut().zip(&next) {
                let Some(sentence) = *row else { continue };
                if self.bundle.stop.contains(&token) {
                    *row = None;
                    continue;
                }
                replies[sentence].push(token);
                if replies[sentence].len() == self.bundle.settings.max_new_tokens {
                    *row = None;
                }
            }
            let still: Vec<usize> = (0..open.len()).filter(|&row| open[row].is_some()).collect();
            if still.is_empty() {
                return Ok(replies);
            }
            // Dropping rows copies the cache, as every step does; it pays from about a quarter of them on.
            if still.len() * 4 <= open.len() * 3 {
                rows = self.decoder.select(&rows, &still)?;
                next = still.iter().map(|&row| next[row]).collect();
                open = still.iter().map(|&row| open[row]).collect();
            }
            next = self.decoder.extend(&mut rows, &as_input(&next).collect::<Vec<_>>())?;
        }
    }

    fn extract_all(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>> {
        // One pass over the memo: a later look-up may already have pushed an entry out.
        let known: Vec<Option<Vec<Triplet>>> = sentences.iter().map(|s| self.memo.get(s).map(<[_]>::to_vec)).collect();
        let unknown: Vec<&str> =
            sentences.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(sentence, _)| *sentence).collect();
        let mut fresh = self.replies(&unknown)?.into_iter();
        let triplets = sentences.iter().zip(known).map(|(sentence, known)| {
            known.unwrap_or_else(|| {
                let reply = fresh.next().expect("there is one reply for each unknown sentence");
                let triplets = triplets_from_reply(&reply);
                self.memo.insert((*sentence).to_owned(), triplets.clone());
                triplets
            })
        });
        Ok(triplets.collect())
    }
}

fn as_input(ids: &[u32]) -> impl Iterator<Item = i64> + '_ {
    ids.iter().map(|&id| i64::from(id))
}

impl corver_core::Extractor for Extractor {
    fn extract(&mut self, sentences: &[&str]) -> std::result::Result<Vec<Vec<Triplet>>, PartError> {
        Ok(self.extract_all(sentences)?)
    }
}
