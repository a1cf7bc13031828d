//! Asking a server, patiently.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use corver_corpus::{CnfOptions, CounterError, Mode, WordCount, WordCounter, WordQuery};
use ureq::Agent;
use ureq::http::{StatusCode, Uri};

use crate::backoff;
use crate::breaker::Breaker;
use crate::cache::{Cache, Key};
use crate::error::RemoteError;
use crate::pace::Pace;
use crate::settings::RemoteSettings;
use crate::wire::{CountAnswer, CountRequest, query_text};

/// Bytes of an answer that are read; a count needs a few hundred.
const ANSWER_BYTES: u64 = 1 << 20;
/// Nobody sleeps longer without looking whether the batch has failed meanwhile.
const NAP: Duration = Duration::from_millis(200);

/// An index behind Infini-gram's HTTP API.
///
/// Failed attempts are repeated until the patience of [`RemoteSettings`] is at its end: lost connections, time-outs, answers
/// that are none, and the states 408, 429 and 5xx. A refusal is final. Threads may share a `Remote`; its limits hold for all
/// of them together.
#[derive(Debug)]
pub struct Remote {
    url: String,
    index: String,
    agent: Agent,
    patience: Duration,
    connections: usize,
    pace: Pace,
    breaker: Breaker,
    cache: Option<Cache>,
}

/// How an attempt failed.
enum Failure {
    /// Another attempt may do better.
    Passing { problem: String, overloaded: bool, retry_after: Option<Duration> },
    /// It may not.
    Refused(String),
}

impl Remote {
    /// Makes ready to ask for an index by its name. Nothing is sent yet. Answers are kept in files in `cache_dir`, where one
    /// is given and the settings want it.
    ///
    /// # Errors
    /// Where the URL or a setting cannot be used, or the cache not be opened.
    pub fn open(
        url: &str,
        index: &str,
        settings: &RemoteSettings,
        cache_dir: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        if let Some((setting, expected)) = settings.problem() {
            return Err(RemoteError::Setting { setting, expected });
        }
        let host = host_of(url).map_err(|problem| RemoteError::Url { url: url.to_owned(), problem })?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0) // a POST that was redirected would arrive as something else
            .max_redirects_will_error(false)
            .max_idle_connections_per_host(settings.connections)
            .timeout_global(Some(Duration::from_secs_f64(settings.timeout_s)))
            .user_agent(concat!("corver/", env!("CARGO_PKG_VERSION")));
        if matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]") {
            config = config.proxy(None);
        }
        let cache = match cache_dir.filter(|_| settings.cache) {
            Some(dir) => Some(Cache::open(dir, url, index)?),
            None => None,
        };
        Ok(Self {
            url: url.to_owned(),
            index: index.to_owned(),
            agent: config.build().new_agent(),
            patience: Duration::from_secs_f64(settings.patience_s),
            connections: settings.connections,
            pace: Pace::new(settings.requests_per_second, Instant::now()),
            breaker: Breaker::new(settings.breaker_failures, Duration::from_secs_f64(settings.breaker_pause_s)),
            cache,
        })
    }

    /// Asks until there is an answer, a refusal, or no patience left. `None` where `stop` ended it sooner.
    fn ask(&self, query: &str, options: &CnfOptions, stop: &AtomicBool) -> Result<Option<WordCount>, RemoteError> {
        let body =
            serde_json::to_vec(&CountRequest::new(&self.index, query, options)).expect("a request is plain JSON");
        let start = Instant::now();
        let mut attempts = 0;
        let mut last = "other requests to this server failed".to_owned();
        loop {
            match self.wait_for_turn(start, stop) {
                Turn::Ours => attempts += 1,
                Turn::Stopped => return Ok(None),
                Turn::TooLate => return Err(self.gave_up(query, attempts, start, &last)),
            }
            let (problem, retry_after) = match self.attempt(&body) {
                Ok(count) => {
                    self.breaker.answered();
                    return Ok(Some(count));
                }
                Err(Failure::Refused(message)) => {
                    self.breaker.answered();
                    let (url, index) = (self.url.clone(), self.index.clone());
                    return Err(RemoteError::Refused { url, index, query: query.to_owned(), message });
                }
                Err(Failure::Passing { problem, overloaded, retry_after }) => {
                    // A server that asks for a slower pace is well.
                    if overloaded {
                        self.breaker.answered()
                    } else {
                        self.breaker.failed(Instant::now())
                    }
                    (problem, retry_after)
                }
            };
            if let Some(pause) = retry_after {
                self.pace.hold(Instant::now(), pause);
            }
            let pause = backoff::after(attempts).max(retry_after.unwrap_or_default());
            tracing::warn!(url = self.url, attempts, problem, again_in = ?pause, "no answer from the index");
            last = problem;
            if start.elapsed() + pause > self.patience {
                return Err(self.gave_up(query, attempts, start, &last));
            }
            if !sleep(pause, stop) {
                return Ok(None);
            }
        }
    }

    /// Waits until breaker and pace let a request through.
    fn wait_for_turn(&self, start: Instant, stop: &AtomicBool) -> Turn {
        loop {
            let now = Instant::now();
            let mut wait = self.pace.wait(now);
            if wait.is_zero() {
                wait = self.breaker.wait(now);
            }
            if wait.is_zero() {
                return Turn::Ours;
            }
            if start.elapsed() + wait > self.patience {
                return Turn::TooLate;
            }
            if !sleep(wait, stop) {
                return Turn::Stopped;
            }
        }
    }

    fn attempt(&self, body: &[u8]) -> Result<WordCount, Failure> {
        let passing = |problem: String| Failure::Passing { problem, overloaded: false, retry_after: None };
        let mut response = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .send(body)
            .map_err(|error| passing(error.to_string()))?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|header| header.to_str().ok())
            .and_then(|header| backoff::retry_after(header, SystemTime::now()));
        let body = response.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
        let body = body.map_err(|error| passing(format!("the answer broke off: {error}")))?;
        let answer = serde_json::from_slice::<CountAnswer>(&body).map(CountAnswer::into_count);

        let busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if busy || status.is_server_error() {
            let problem = match answer {
                Ok(Err(message)) => format!("status {status}: {message}"),
                _ => format!("status {status}"),
            };
            let overloaded = status == StatusCode::TOO_MANY_REQUESTS;
            return Err(Failure::Passing { problem, overloaded, retry_after });
        }
        match answer {
            Ok(Err(message)) => Err(Failure::Refused(message)),
            Ok(Ok(count)) if status.is_success() => Ok(count),
            _ if status.is_success() => Err(passing(format!("no answer of Infini-gram's API, but {}", excerpt(&body)))),
            _ => Err(Failure::Refused(format!("status {status}: {}", excerpt(&body)))),
        }
    }

    fn gave_up(&self, query: &str, attempts: u32, start: Instant, last: &str) -> RemoteError {
        RemoteError::GaveUp {
            url: self.url.clone(),
            index: self.index.clone(),
            query: query.to_owned(),
            attempts,
            seconds: start.elapsed().as_secs_f64(),
            last: last.to_owned(),
        }
    }

    /// Asks for all of these at once, as far as the connections go, and ends with the first that fails.
    fn ask_all(&self, queries: &[&str], options: &CnfOptions) -> Result<Vec<WordCount>, RemoteError> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let answers = Mutex::new(vec![None; queries.len()]);
        let failure = Mutex::new(None);
        let work = || {
            while !stop.load(Relaxed) {
                let number = next.fetch_add(1, Relaxed);
                let Some(query) = queries.get(number) else { return };
                match self.ask(query, options, &stop) {
                    Ok(Some(count)) => {
                        self.remember(query, options, count);
                        answers.lock().expect("no thread panics with it")[number] = Some(count);
                    }
                    Ok(None) => return,
                    Err(error) => {
                        stop.store(true, Relaxed);
                        failure.lock().expect("no thread panics with it").get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.connections.min(queries.len()) {
                scope.spawn(work);
            }
        });
        match failure.into_inner().expect("no thread panics with it") {
            Some(error) => Err(error),
            None => Ok(answers.into_inner().expect("no thread panics with it").into_iter().flatten().collect()),
        }
    }

    /// A cache that cannot be written is no reason to lose a run.
    fn remember(&self, query: &str, options: &CnfOptions, count: WordCount) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(Key::new(query, options), count)
        {
            tracing::warn!(%error, "a count is not kept");
        }
    }

    fn remembered(&self, query: &str, options: &CnfOptions) -> Option<WordCount> {
        self.cache.as_ref()?.get(&Key::new(query, options))
    }
}

impl WordCounter for Remote {
    /// A query that the API has no words for (an empty term, or one that holds an operator) has no count. Every count is
    /// complete, whatever would have been `enough`.
    fn count_all(
        &self,
        queries: &[WordQuery<'_>],
        options: &CnfOptions,
    ) -> Result<Vec<Option<WordCount>>, CounterError> {
        if options.mode == Mode::Span {
            return Err(RemoteError::Span.into());
        }
        let texts: Vec<Option<String>> = queries.iter().map(|query| query_text(query.all_of)).collect();
        let mut counts: Vec<Option<WordCount>> =
            texts.iter().map(|text| self.remembered(text.as_ref()?, options)).collect();
        let unknown: Vec<(usize, &str)> = texts
            .iter()
            .enumerate()
            .filter_map(|(number, text)| Some((number, text.as_deref()?)))
            .filter(|&(number, _)| counts[number].is_none())
            .collect();
        let asked: Vec<&str> = unknown.iter().map(|&(_, text)| text).collect();
        for ((number, _), count) in unknown.into_iter().zip(self.ask_all(&asked, options)?) {
            counts[number] = Some(count);
        }
        Ok(counts)
    }
}

/// How the wait for a turn ended.
enum Turn {
    Ours,
    Stopped,
    TooLate,
}

/// Whether it slept to the end.
fn sleep(whole: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + whole;
    loop {
        if stop.load(Relaxed) {
            return false;
        }
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return true,
            left => std::thread::sleep(left.min(NAP)),
        }
    }
}

/// The host that a URL names, or what is wrong with the URL.
fn host_of(url: &str) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|error: ureq::http::uri::InvalidUri| error.to_string())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it must begin with http:// or https://".to_owned());
    }
    uri.host().filter(|host| !host.is_empty()).map(str::to_owned).ok_or_else(|| "it names no host".to_owned())
}

/// The start of something that was not expected.
fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(body);
    let start: String = text.trim().chars().take(SHOWN).collect();
    if start.is_empty() { "nothing".to_owned() } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host() {
        assert_eq!(host_of("https://api.infini-gram.io/").unwrap(), "api.infini-gram.io");
        assert_eq!(host_of("http://[::1]:8765").unwrap(), "[::1]");
        for wrong in ["", "api.infini-gram.io", "ftp://host/", "http://", "http://a b/"] {
            assert!(host_of(wrong).is_err(), "{wrong:?}");
        }
    }
}
