//! An index behind Infini-gram's HTTP API.

mod cache;
mod error;
mod http;
mod settings;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_core::{CorpusSize, Count, Counter, PartError, Query};
use corver_corpus::{CnfCount, CnfOptions, Mode};
use corver_http::{Client, Failure, FirstFailure, Patience, Unanswered, each};

use crate::local::count_of;
use crate::wire::{About, Answer, Request};
use crate::{TOKEN_VARIABLE, Token};
use cache::Cache;

pub use error::RemoteError;
pub use settings::RemoteSettings;

/// Asks a server for counts, patiently.
///
/// An attempt fails in passing where the connection is lost or takes too long, where the answer is none, and with the states
/// 408, 429 and 5xx. It is then repeated, after a wait that doubles and follows `Retry-After`, until the patience of
/// [`RemoteSettings`] is at its end. A refusal is final. A batch ends with its first final failure.
#[derive(Debug)]
pub struct Remote {
    client: Client,
    index: String,
    options: CnfOptions,
    patience: Patience,
    connections: usize,
    cache: Option<Cache>,
    size: CorpusSize,
}

impl Remote {
    /// Prepares to ask for an index by its name, always with the same options. Nothing is sent yet. Answers are kept in files
    /// in `cache_dir`, where one is given and the settings want it.
    ///
    /// # Errors
    /// Where the URL, the mode, the token or a setting cannot be used, or the cache not be opened.
    pub fn open(
        url: &str,
        index: &str,
        options: CnfOptions,
        settings: &RemoteSettings,
        cache_dir: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        if options.mode == Mode::Span {
            return Err(RemoteError::Span);
        }
        if let Some((setting, expected)) = settings.problem() {
            return Err(RemoteError::Setting { setting, expected });
        }
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let token = Token::load(settings.token_file.as_deref(), Some(TOKEN_VARIABLE))?;
        let client = Client::new(url, settings.connections, timeout, token.as_ref())?;
        let cache_dir = cache_dir.filter(|_| settings.cache);
        Ok(Self {
            client,
            index: index.to_owned(),
            options,
            patience: Patience::new(Duration::from_secs_f64(settings.patience_s), settings.requests_per_second),
            connections: settings.connections,
            cache: cache_dir.map(|dir| Cache::open(dir, url, index)).transpose()?,
            size: CorpusSize::default(),
        })
    }

    /// Asks how large the corpus is. Only our server says; with another the size stays unknown, whatever it answers.
    ///
    /// # Errors
    /// Where the server does not answer at all.
    pub fn ask_size(&mut self) -> Result<(), RemoteError> {
        if let Some(size) = self.cache.as_ref().and_then(Cache::size) {
            self.size = size;
            return Ok(());
        }
        let about =
            self.ask("a request for the corpus's size", &FirstFailure::default(), || http::about(&self.client))?;
        if let Some(About { index, tokens, documents, .. }) = about.flatten()
            && index == self.index
        {
            self.size = CorpusSize { tokens: Some(tokens), documents: Some(documents) };
            self.keep(|cache| cache.put_size(self.size));
        }
        Ok(())
    }

    /// A count with everything that the server says about it; `None` for a query that the API has no words for.
    ///
    /// # Errors
    /// Where the server refuses the query, or gives no answer for as long as patience lasts.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, RemoteError> {
        Ok(self.count_all(&[all_of])?.pop().flatten())
    }

    fn count_all(&self, queries: &[&[Vec<String>]]) -> Result<Vec<Option<CnfCount>>, RemoteError> {
        let mut counts = vec![None; queries.len()];
        let mut unknown = Vec::new();
        for (place, all_of) in queries.iter().enumerate() {
            let Some(text) = query_text(all_of) else { continue };
            counts[place] = self.cache.as_ref().and_then(|cache| cache.count(&text, &self.options));
            if counts[place].is_none() {
                unknown.push((place, text));
            }
        }
        for (place, count) in self.ask_all(unknown)? {
            counts[place] = Some(count);
        }
        Ok(counts)
    }

    /// Asks for all of these, as many at a time as there are connections. The answers come in any order, with their places.
    fn ask_all(&self, queries: Vec<(usize, String)>) -> Result<Vec<(usize, CnfCount)>, RemoteError> {
        let answers = Mutex::new(Vec::with_capacity(queries.len()));
        each(queries, self.connections, |(place, query), failure| {
            if let Some(count) = self.ask_count(&query, failure)? {
                answers.lock().expect("no thread panics with it").push((place, count));
            }
            Ok(())
        })?;
        Ok(answers.into_inner().expect("no thread panics with it"))
    }

    fn ask_count(&self, query: &str, failure: &FirstFailure<RemoteError>) -> Result<Option<CnfCount>, RemoteError> {
        let request = Request::new(&self.index, query, &self.options);
        let answer = self.ask(&format!("the query {query:?}"), failure, || http::count(&self.client, &request))?;
        let count = answer.map(|Answer { count, approx, exact, .. }| {
            let sampled = exact.map_or(approx, |exact| !exact);
            CnfCount { count, approx, sampled, at_least: false }
        });
        if let Some(count) = count {
            self.keep(|cache| cache.put_count(query, &self.options, count));
        }
        Ok(count)
    }

    /// Repeats an attempt until there is an answer, a refusal, or no patience left. `None` where another request of the batch
    /// failed first.
    fn ask<T>(
        &self,
        request: &str,
        failure: &FirstFailure<RemoteError>,
        attempt: impl Fn() -> Result<T, Failure>,
    ) -> Result<Option<T>, RemoteError> {
        self.patience.ask(self.client.url(), failure, attempt).map_err(|unanswered| {
            let (url, index, request) = (self.client.url().to_owned(), self.index.clone(), request.to_owned());
            match unanswered {
                Unanswered::Refused(message) => RemoteError::Refused { url, index, request, message },
                Unanswered::GaveUp { attempts, seconds, last } => {
                    RemoteError::GaveUp { url, index, request, attempts, seconds, last }
                }
            }
        })
    }

    /// Writes to the cache, if there is one. A cache that cannot be written does not stop a run.
    fn keep(&self, write: impl FnOnce(&Cache) -> Result<(), RemoteError>) {
        if let Some(Err(error)) = self.cache.as_ref().map(write) {
            tracing::warn!(%error, "an answer is not kept");
        }
    }
}

impl Counter for Remote {
    /// Every count is whole: the API has no word for `enough`.
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let all_of: Vec<_> = queries.iter().map(|query| query.all_of.as_slice()).collect();
        Ok(self.count_all(&all_of)?.into_iter().map(count_of).collect())
    }

    fn size(&self) -> CorpusSize {
        self.size
    }
}

/// AND of ORs as the API writes it; `None` where the text would mean something else or nothing: a term is empty, or holds an
/// operator.
fn query_text(all_of: &[Vec<String>]) -> Option<String> {
    let trimmed: Vec<Vec<&str>> = all_of.iter().map(|words| words.iter().map(|word| word.trim()).collect()).collect();
    let text = trimmed.iter().map(|words| words.join(" OR ")).collect::<Vec<_>>().join(" AND ");
    // Read back by the very rules of the other side.
    corver_corpus::parse_query(&text).is_ok_and(|read| read == trimmed).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_written_so_that_they_read_back() {
        let text = |all_of: &[&[&str]]| {
            query_text(
                &all_of.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            text(&[&["Levi Stadium"], &["Denver", "Colorado "]]).as_deref(),
            Some("Levi Stadium AND Denver OR Colorado")
        );
        assert_eq!(text(&[&["Band and Order"]]).as_deref(), Some("Band and Order"));
        for unspeakable in [
            &[&["this AND that"][..]][..],
            &[&["a"], &["b OR c"]],
            &[&["a"], &[" "]],
            &[&["a"], &[]],
            &[&[], &["a"]],
            &[],
        ] {
            assert_eq!(text(unspeakable), None, "{unspeakable:?}");
        }
    }
}
