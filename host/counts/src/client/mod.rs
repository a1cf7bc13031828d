//! An index behind Infini-gram's HTTP API.

mod batch;
mod cache;
mod error;
mod http;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_core::{BoxError, CorpusSize, Count, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, Mode, Part};
use corver_http::{Client, Failure, FirstFailure, Patience, Unanswered, each};

use crate::wire::{About, Counted, Request};
use crate::{TOKEN_VARIABLE, Token};
use batch::Asked;
use cache::Cache;

pub use corver_settings::RemoteSettings;
pub use error::RemoteError;

/// Asks a server for counts, patiently.
///
/// An attempt fails in passing where the connection is lost or takes too long, where the answer is
/// none, and with the states 408, 429 and 5xx. It is then repeated, after a wait that doubles and
/// follows `Retry-After`, until the patience of
/// [`RemoteSettings`] is at its end. A refusal is final. A batch ends with its first final failure.
///
/// A server of ours is asked many queries at once, with what is enough for each; any other one by
/// one, and for whole counts.
#[derive(Debug)]
pub struct Remote {
    client: Client,
    index: String,
    options: CnfOptions,
    patience: Patience,
    connections: usize,
    cache: Option<Cache>,
    /// What a server of ours says about itself.
    about: Option<About>,
}

impl Remote {
    /// Prepares to ask for an index by its name, always with the same options. The server is asked
    /// what it is. Answers are kept in files in `cache_dir`, where one is given and the settings
    /// want it.
    ///
    /// # Errors
    /// Where the URL, the token or a setting cannot be used, or the cache not be opened; where the
    /// server does not answer at all, has another index, or cannot count in this mode.
    pub fn open(
        url: &str,
        index: &str,
        options: CnfOptions,
        settings: &RemoteSettings,
        cache_dir: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        if let Some(problem) = corver_settings::check("corpus.remote", settings).into_iter().next()
        {
            return Err(problem.into());
        }
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let token = Token::load(settings.token_file.as_deref(), Some(TOKEN_VARIABLE))?;
        let client = Client::new(url, settings.connections, timeout, token.as_ref())?;
        let cache_dir = cache_dir.filter(|_| settings.cache);
        let mut remote = Self {
            client,
            index: index.to_owned(),
            options,
            patience: Patience::new(
                Duration::from_secs_f64(settings.patience_s),
                settings.requests_per_second,
            ),
            connections: settings.connections,
            cache: cache_dir.map(|dir| Cache::open(dir, url, index, options)).transpose()?,
            about: None,
        };
        // Only a server of ours counts in the other modes.
        let must_be_ours = options.mode != Mode::Compatible;
        let question = match must_be_ours {
            true => "the question in which modes it counts",
            false => "the question what it serves",
        };
        let ask = || http::about(&remote.client, must_be_ours);
        remote.about = remote.ask(question, &FirstFailure::default(), ask)?.flatten();
        remote.check()?;
        Ok(remote)
    }

    /// That the server can be asked for what is to be asked.
    fn check(&self) -> Result<(), RemoteError> {
        let (url, mode) = (self.client.url(), self.options.mode);
        match &self.about {
            Some(About { index: has, .. }) if *has != self.index => Err(RemoteError::Unsuitable(
                format!("{url} has the index {has}, not {}: write it as {url}#{has}", self.index),
            )),
            Some(about) if about.modes.contains(&mode) => Ok(()),
            None if mode == Mode::Compatible => Ok(()),
            _ => Err(RemoteError::Unsuitable(format!(
                "{url} does not say that it counts in the mode `{}`, as `corver-host index serve` \
                 does; use `compatible`, or an index on this machine",
                format!("{mode:?}").to_lowercase()
            ))),
        }
    }

    /// The shards that the server says it has.
    pub(crate) fn part(&self) -> Option<Part> {
        self.about.as_ref().and_then(|about| about.part.clone())
    }

    /// A count with everything that the server says about it; `None` for a query that the API has
    /// no words for, or a word without tokens.
    ///
    /// # Errors
    /// Where the server refuses the query, or gives no answer for as long as patience lasts.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, RemoteError> {
        let counted =
            self.count_all(&[Query { all_of: all_of.to_vec(), limit: None }])?.pop().flatten();
        Ok(counted.map(|Counted { count, approx, exact }| CnfCount {
            count,
            approx,
            sampled: !exact,
            at_least: false,
        }))
    }

    fn count_all(&self, queries: &[Query]) -> Result<Vec<Option<Counted>>, RemoteError> {
        let mut counts = vec![None; queries.len()];
        // The queries of a batch nearly always stop alike.
        let mut unknown: BTreeMap<Option<u64>, Vec<Asked>> = BTreeMap::new();
        for (place, query) in queries.iter().enumerate() {
            let Some(text) = query_text(&query.all_of) else { continue };
            let enough = query.limit.filter(|_| self.about.is_some());
            counts[place] = self.cache.as_ref().and_then(|cache| cache.get(&text, enough));
            if counts[place].is_none() {
                unknown.entry(enough).or_default().push(Asked { place, text });
            }
        }
        let divide =
            |(enough, asked)| self.divide(asked).into_iter().map(move |part| (enough, part));
        for (place, counted) in self.ask_all(unknown.into_iter().flat_map(divide).collect())? {
            counts[place] = counted;
        }
        Ok(counts)
    }

    /// As many at a time as one request may ask.
    fn divide(&self, asked: Vec<Asked>) -> Vec<Vec<Asked>> {
        let Some(About { queries, body_bytes, .. }) = self.about else {
            return asked.into_iter().map(|one| vec![one]).collect();
        };
        let empty = Request::of_many(&self.index, Vec::new(), &self.options, Some(u64::MAX));
        let around = serde_json::to_string(&empty).expect("a request is plain JSON").len();
        // Every connection has its part.
        let most = asked.len().div_ceil(self.connections).min(queries);
        batch::divide(asked, most, body_bytes.saturating_sub(around))
    }

    /// Asks for all of these, as many requests at a time as there are connections. The answers come
    /// in any order, with their places.
    fn ask_all(
        &self,
        parts: Vec<(Option<u64>, Vec<Asked>)>,
    ) -> Result<Vec<(usize, Option<Counted>)>, RemoteError> {
        let answers = Mutex::new(Vec::new());
        each(parts, self.connections, |(enough, part), failure| {
            if let Some(counts) = self.ask_part(&part, enough, failure)? {
                let mut answers = answers.lock().expect("no thread panics with it");
                answers.extend(part.iter().map(|asked| asked.place).zip(counts));
            }
            Ok(())
        })?;
        Ok(answers.into_inner().expect("no thread panics with it"))
    }

    /// One request, or several smaller ones where the server says that it is too large. `None`
    /// where another request of the batch failed first.
    fn ask_part(
        &self,
        part: &[Asked],
        enough: Option<u64>,
        failure: &FirstFailure<RemoteError>,
    ) -> Result<Option<Vec<Option<Counted>>>, RemoteError> {
        let what = match part {
            [only] => format!("the query {:?}", only.text),
            _ => format!("{} queries", part.len()),
        };
        let answer = match (&self.about, part) {
            (None, [only]) => {
                let request = Request::new(&self.index, &only.text, &self.options);
                let ask =
                    || http::count(&self.client, &request).map(|counted| Some(vec![Some(counted)]));
                self.ask(&what, failure, ask)?
            }
            _ => {
                let texts = part.iter().map(|asked| asked.text.clone()).collect();
                let request = Request::of_many(&self.index, texts, &self.options, enough);
                self.ask(&what, failure, || http::counts(&self.client, &request, part.len()))?
            }
        };
        let Some(counts) = answer else { return Ok(None) };
        if let Some(counts) = counts {
            self.keep(part, enough, &counts);
            return Ok(Some(counts));
        }
        let (first, second) = part.split_at(part.len() / 2);
        let Some(mut first_counts) = self.ask_part(first, enough, failure)? else {
            return Ok(None);
        };
        let Some(more) = self.ask_part(second, enough, failure)? else { return Ok(None) };
        first_counts.extend(more);
        Ok(Some(first_counts))
    }

    /// Writes answers to the cache, if there is one. A cache that cannot be written does not stop a
    /// run.
    fn keep(&self, part: &[Asked], enough: Option<u64>, counts: &[Option<Counted>]) {
        let Some(cache) = &self.cache else { return };
        for (asked, counted) in part.iter().zip(counts) {
            if let Some(counted) = counted
                && let Err(error) = cache.put(&asked.text, enough, *counted)
            {
                tracing::warn!(%error, "an answer is not kept");
            }
        }
    }

    /// Repeats an attempt until there is an answer, a refusal, or no patience left. `None` where
    /// another request of the batch failed first.
    fn ask<T>(
        &self,
        request: &str,
        failure: &FirstFailure<RemoteError>,
        attempt: impl Fn() -> Result<T, Failure>,
    ) -> Result<Option<T>, RemoteError> {
        self.patience.ask(self.client.url(), failure, attempt).map_err(|unanswered| {
            let (url, index) = (self.client.url(), &self.index);
            match unanswered {
                Unanswered::Refused(message) => RemoteError::Refused(format!(
                    "{url} refuses {request} on its index {index}: {message}"
                )),
                Unanswered::GaveUp { attempts, seconds, last } => RemoteError::GaveUp(format!(
                    "{url} did not answer {request} on its index {index} in {attempts} attempts \
                     and {seconds:.0} s; at last: {last}"
                )),
            }
        })
    }
}

impl Counter for Remote {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut counts = Vec::with_capacity(queries.len());
        for (query, counted) in queries.iter().zip(self.count_all(queries)?) {
            counts.push(counted.map_or(Count::exact(None), |counted| counted.count(query.limit)));
        }
        Ok(counts)
    }

    /// Only our server says.
    fn size(&self) -> CorpusSize {
        let about = self.about.as_ref();
        CorpusSize {
            tokens: about.map(|about| about.tokens),
            documents: about.map(|about| about.documents),
        }
    }
}

/// AND of ORs as the API writes it; `None` where the text would mean something else or nothing: a
/// term is empty, or holds an operator.
fn query_text(all_of: &[Vec<String>]) -> Option<String> {
    let trimmed: Vec<Vec<&str>> =
        all_of.iter().map(|words| words.iter().map(|word| word.trim()).collect()).collect();
    let text = trimmed.iter().map(|words| words.join(" OR ")).collect::<Vec<_>>().join(" AND ");
    // Read back by the very rules of the other side.
    corver_corpus::parse_query(&text).is_ok_and(|read| read == trimmed).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_text_omits_unrepresentable_queries() {
        let text = |all_of: &[&[&str]]| {
            query_text(
                &all_of
                    .iter()
                    .map(|words| words.iter().map(|&word| word.to_owned()).collect())
                    .collect::<Vec<_>>(),
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
