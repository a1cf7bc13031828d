//! A client of Infini-gram's HTTP API.

mod batch;
mod disk_cache;
mod error;
mod fetch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_core::text::excerpt;
use corver_core::{BoxError, CorpusInfo, Count, CountPrecision, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, Mode, Part};
use corver_http::{
    AttemptError, Client, FirstFailure, RequestError, RetryPolicy, for_each_concurrent,
    shorten_foreign,
};

use crate::wire::{self, CountRequest, CountResult, ServerInfo};
use crate::{TOKEN_VARIABLE, Token};
use batch::{PendingQuery, split_into_batches};
use disk_cache::DiskCache;

pub use corver_settings::RemoteSettings;
pub use error::RemoteError;

/// A counter behind HTTP, with retries, a rate limit and an on-disk cache.
///
/// An attempt fails with a transient error if the connection fails or times out, if the response is
/// not of the API, and with status 408, 429 or 5xx. It is retried with exponential backoff, which
/// honours `Retry-After`, for `retry_timeout_s` of [`RemoteSettings`]. A refusal is final. A batch ends
/// with its first final failure.
///
/// A `corver-host` server receives many queries in one request, each with its limit. Any other
/// server receives one query per request, without a limit.
#[derive(Debug)]
pub struct Remote {
    client: Client,
    index: String,
    options: CnfOptions,
    retry_policy: RetryPolicy,
    connections: usize,
    cache: Option<DiskCache>,
    /// Description of the server; `None` if it is not a `corver-host` server.
    info: Option<ServerInfo>,
}

/// Queries with one limit, to be counted by one request.
struct QueryBatch {
    limit: Option<u64>,
    queries: Vec<PendingQuery>,
}

impl Remote {
    /// Opens an index of a server by its name, and requests the server's description. All counts
    /// have the same options. They are cached in files in `cache_dir` if it is set and
    /// `settings.cache` is true.
    ///
    /// # Errors
    /// Fails if the URL, the token or a setting is invalid, if the cache cannot be opened, or if the
    /// server does not respond, has another index, or does not support the mode.
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
        let mut remote = Self {
            client,
            index: index.to_owned(),
            options,
            retry_policy: RetryPolicy::new(
                Duration::from_secs_f64(settings.retry_timeout_s),
                settings.requests_per_second,
            ),
            connections: settings.connections,
            cache: None,
            info: None,
        };
        // Only a `corver-host` server supports the other modes, and it describes itself.
        let info_required = options.mode != Mode::Compatible;
        let request = match info_required {
            true => "the request for the modes that it supports",
            false => "the request for its description",
        };
        remote.info = remote
            .retry(request, &FirstFailure::default(), || {
                fetch::fetch_info(&remote.client, info_required)
            })?
            .flatten();
        remote.check_support()?;
        if let Some(dir) = cache_dir
            && settings.cache
        {
            let info = remote.info.as_ref();
            remote.cache = Some(DiskCache::open(dir, url, index, info, options)?);
        }
        Ok(remote)
    }

    /// Checks that the server has the index and supports the mode.
    fn check_support(&self) -> Result<(), RemoteError> {
        let url = self.client.url();
        let mode = self.options.mode;
        match &self.info {
            Some(ServerInfo { index: has, .. }) if *has != self.index => {
                let has = shorten_foreign(has);
                Err(RemoteError::Unsuitable(format!(
                    "{url} has the index {has}, not {}: write it as {url}#{has}",
                    self.index
                )))
            }
            Some(info) if info.modes.contains(&mode) => Ok(()),
            None if mode == Mode::Compatible => Ok(()),
            _ => Err(RemoteError::Unsuitable(format!(
                "{url} does not report support for the mode `{mode}`, as `corver-host index serve` \
                 does; count in the mode `compatible` (corpus.mode, --mode), or in an index on this \
                 machine"
            ))),
        }
    }

    /// Returns the shards that the server reports; `None` if it does not.
    pub(crate) fn part(&self) -> Option<Part> {
        self.info.as_ref().and_then(|info| info.part.clone())
    }

    /// Returns a count without a limit, with the server's flags; `None` if the API cannot express
    /// the query or a word has no tokens.
    ///
    /// # Errors
    /// Fails if the server refuses the query, or the retries are exhausted.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, RemoteError> {
        let query = Query { all_of: all_of.to_vec(), limit: None };
        let result = self.count_all(&[query])?.pop().flatten();
        Ok(result.map(|CountResult { count, approx, precision }| CnfCount {
            count,
            approx,
            sampled: precision == CountPrecision::Estimate,
            at_least: precision == CountPrecision::AtLeast,
        }))
    }

    fn count_all(&self, queries: &[Query]) -> Result<Vec<Option<CountResult>>, RemoteError> {
        let mut results = vec![None; queries.len()];
        // A request has one limit. The queries of a step nearly always have the same one.
        let mut pending: BTreeMap<Option<u64>, Vec<PendingQuery>> = BTreeMap::new();
        for (index, query) in queries.iter().enumerate() {
            let Some(text) = query_text(&query.all_of) else { continue };
            let limit = query.limit.filter(|_| self.info.is_some());
            results[index] = self.cache.as_ref().and_then(|cache| cache.get(&text, limit));
            if results[index].is_none() {
                pending.entry(limit).or_default().push(PendingQuery { index, text });
            }
        }
        let mut batches = Vec::new();
        for (limit, pending_queries) in pending {
            for batch in self.split_into_batches(pending_queries) {
                batches.push(QueryBatch { limit, queries: batch });
            }
        }
        for (index, result) in self.count_batches(batches)? {
            results[index] = result;
        }
        Ok(results)
    }

    /// Splits queries into batches that the server accepts, at least one for each connection.
    fn split_into_batches(&self, queries: Vec<PendingQuery>) -> Vec<Vec<PendingQuery>> {
        let Some(info) = &self.info else {
            return queries.into_iter().map(|query| vec![query]).collect();
        };
        let empty = CountRequest::batch(&self.index, Vec::new(), &self.options, Some(u64::MAX));
        let envelope_bytes = serde_json::to_string(&empty).expect("a request is plain JSON").len();
        let max_queries = queries.len().div_ceil(self.connections).min(info.queries);
        split_into_batches(queries, max_queries, info.body_bytes.saturating_sub(envelope_bytes))
    }

    /// Counts batches, with one request in flight per connection. Returns the results in any order,
    /// each with the index of its query.
    fn count_batches(
        &self,
        batches: Vec<QueryBatch>,
    ) -> Result<Vec<(usize, Option<CountResult>)>, RemoteError> {
        let results = Mutex::new(Vec::new());
        for_each_concurrent(batches, self.connections, |batch, failure| {
            if let Some(counts) = self.count_batch(&batch.queries, batch.limit, failure)? {
                let indices = batch.queries.iter().map(|query| query.index);
                results.lock().expect("no thread panics with it").extend(indices.zip(counts));
            }
            Ok(())
        })?;
        Ok(results.into_inner().expect("no thread panics with it"))
    }

    /// Counts a batch with one request, or with two smaller batches if the server reports that the
    /// request is too large. Returns `None` if another batch failed first.
    fn count_batch(
        &self,
        queries: &[PendingQuery],
        limit: Option<u64>,
        failure: &FirstFailure<RemoteError>,
    ) -> Result<Option<Vec<Option<CountResult>>>, RemoteError> {
        let description = match queries {
            [query] => format!("the query {:?}", excerpt(&query.text)),
            _ => format!("{} queries", queries.len()),
        };
        let reply = match (&self.info, queries) {
            (None, [query]) => {
                let request = CountRequest::new(&self.index, &query.text, &self.options);
                self.retry(&description, failure, || {
                    let result = fetch::fetch_count(&self.client, &request)?;
                    Ok(Some(vec![Some(result)]))
                })?
            }
            _ => {
                let texts = queries.iter().map(|query| query.text.clone()).collect();
                let request = CountRequest::batch(&self.index, texts, &self.options, limit);
                self.retry(&description, failure, || {
                    fetch::fetch_counts(&self.client, &request, queries.len())
                })?
            }
        };
        let Some(accepted) = reply else { return Ok(None) };
        if let Some(counts) = accepted {
            self.cache_counts(queries, limit, &counts);
            return Ok(Some(counts));
        }
        let (left, right) = queries.split_at(queries.len() / 2);
        let Some(mut counts) = self.count_batch(left, limit, failure)? else { return Ok(None) };
        let Some(right_counts) = self.count_batch(right, limit, failure)? else { return Ok(None) };
        counts.extend(right_counts);
        Ok(Some(counts))
    }

    /// Writes counts to the on-disk cache, if there is one. A failure is logged and does not end
    /// the run.
    fn cache_counts(
        &self,
        queries: &[PendingQuery],
        limit: Option<u64>,
        counts: &[Option<CountResult>],
    ) {
        let Some(cache) = &self.cache else { return };
        for (query, count) in queries.iter().zip(counts) {
            if let Some(count) = count
                && let Err(error) = cache.put(&query.text, limit, *count)
            {
                tracing::warn!(%error, "failed to cache a count");
            }
        }
    }

    /// Runs an attempt with retries. Returns `None` if another request of the batch failed first.
    /// `request` describes the attempt, for errors.
    fn retry<T>(
        &self,
        request: &str,
        failure: &FirstFailure<RemoteError>,
        attempt: impl Fn() -> Result<T, AttemptError>,
    ) -> Result<Option<T>, RemoteError> {
        let url = self.client.url();
        let index = &self.index;
        self.retry_policy.run(url, failure, attempt).map_err(|error| match error {
            RequestError::Refused(message) => RemoteError::Refused(format!(
                "{url} refuses {request} on its index {index}: {message}"
            )),
            RequestError::RetriesExhausted { attempts, seconds, last_error } => {
                RemoteError::Unavailable(format!(
                    "{url} did not answer {request} on its index {index} within {seconds:.0} s \
                     (attempts: {attempts}); last error: {last_error}"
                ))
            }
        })
    }
}

impl Counter for Remote {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut counts = Vec::with_capacity(queries.len());
        for result in self.count_all(queries)? {
            counts.push(match result {
                Some(result) => result.to_count(),
                None => Count::exact(None),
            });
        }
        Ok(counts)
    }

    /// Describes the corpus by what a `corver-host` server reports; another server reports no size.
    fn info(&self) -> CorpusInfo {
        let info = self.info.as_ref();
        CorpusInfo {
            tokens: info.map(|info| info.tokens),
            documents: info.map(|info| info.documents),
            window: Some(self.options.max_diff_tokens),
            mode: Some(wire::count_mode(self.options.mode)),
        }
    }
}

/// Returns the query in the API's syntax; `None` if the text would be parsed as another query,
/// because a term is empty or holds an operator.
fn query_text(all_of: &[Vec<String>]) -> Option<String> {
    let trimmed: Vec<Vec<&str>> =
        all_of.iter().map(|words| words.iter().map(|word| word.trim()).collect()).collect();
    let clauses: Vec<String> = trimmed.iter().map(|words| words.join(" OR ")).collect();
    let text = clauses.join(" AND ");
    // The parser is the server's: what it does not return unchanged, the API cannot express.
    corver_corpus::parse_query(&text).is_ok_and(|parsed| parsed == trimmed).then_some(text)
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
        for inexpressible in [
            &[&["this AND that"][..]][..],
            &[&["a"], &["b OR c"]],
            &[&["a"], &[" "]],
            &[&["a"], &[]],
            &[&[], &["a"]],
            &[],
        ] {
            assert_eq!(text(inexpressible), None, "{inexpressible:?}");
        }
    }
}
