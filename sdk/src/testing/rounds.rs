//! The host's rounds of requests and replies, with its limits.

use super::limits;
use crate::{
    Capability, ChatPrompt, Completion, Corpus, CorpusInfo, Count, NliPair, Pending, Precision,
    Query, Reply, Request, Search,
};

/// The limits of a rule.
pub(super) struct Allowed<'a> {
    pub(super) capabilities: &'a [Capability],
    pub(super) requests_per_subject: usize,
}

/// A rule's final outcome for one sentence or completion, and all its requests in order.
pub(super) struct Settled<T> {
    pub(super) outcome: T,
    pub(super) requests: Vec<Request>,
}

/// Runs `rule` until none of its outcomes is pending.
pub(super) fn run_rounds<T>(
    allowed: &Allowed<'_>,
    completion: &Completion,
    num_subjects: usize,
    info: CorpusInfo,
    rule: impl for<'a> Fn(&'a Completion, Vec<Corpus<'a>>) -> Vec<Result<T, Pending>>,
    answer: impl Fn(&Request) -> Reply,
) -> Vec<Settled<T>> {
    let mut replies: Vec<Vec<Reply>> = vec![Vec::new(); num_subjects];
    let mut requests: Vec<Vec<Request>> = vec![Vec::new(); num_subjects];
    for _ in 0..=limits::ROUNDS {
        let mut corpora = Vec::new();
        for (subject_replies, subject_requests) in replies.iter().zip(&requests) {
            corpora.push(Corpus::recorded(info, subject_replies, subject_requests));
        }
        let outcomes = rule(completion, corpora);
        assert_eq!(outcomes.len(), num_subjects, "a rule must return one outcome per sentence");
        if outcomes.iter().all(Result::is_ok) {
            let settled = outcomes.into_iter().flatten().zip(requests);
            return settled.map(|(outcome, sent)| Settled { outcome, requests: sent }).collect();
        }
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let Err(Pending(new_requests)) = outcome else { continue };
            for request in new_requests {
                check(&request, allowed.capabilities);
                replies[index].push(answer(&request));
                requests[index].push(request);
            }
            let limit = allowed.requests_per_subject;
            let count = requests[index].len();
            assert!(
                count <= limit,
                "{count} requests for one sentence or completion: at most {limit} are allowed"
            );
        }
    }
    panic!("the rule is still pending after {} rounds of replies", limits::ROUNDS);
}

/// Returns the reply of an index that stops counting at the query's limit.
pub(super) fn stop_at_limit(request: &Request, reply: Reply) -> Reply {
    match (request, reply) {
        (
            Request::Count(Query { limit: Some(limit), .. }),
            Reply::Count(Count { occurrences: Some(n), .. }),
        ) if n > *limit => {
            Reply::Count(Count { occurrences: Some(*limit), precision: Precision::AtLeast })
        }
        (_, reply) => reply,
    }
}

fn check(request: &Request, capabilities: &[Capability]) {
    match request {
        Request::Count(query) => check_query(query),
        Request::Nli(NliPair { premise, hypothesis }) => {
            check_capability(Capability::Nli, capabilities);
            check_text(premise);
            check_text(hypothesis);
        }
        Request::Chat(prompt) => {
            check_capability(Capability::Chat, capabilities);
            check_prompt(prompt);
        }
        Request::Passages(Search { title, query, k }) => {
            check_capability(Capability::Passages, capabilities);
            title.iter().for_each(|title| check_text(title));
            check_text(query);
            let limit = limits::PASSAGES_PER_SEARCH;
            assert!((1..=limit).contains(k), "a search for {k} passages: 1 to {limit} are allowed");
        }
    }
}

fn check_capability(capability: Capability, capabilities: &[Capability]) {
    assert!(
        capabilities.contains(&capability),
        "the rule requests {capability:?}, which its REQUIRES does not name"
    );
}

fn check_query(query: &Query) {
    let limit = limits::WORDS_PER_QUERY;
    let words = query.words().count();
    assert!((1..=limit).contains(&words), "a query of {words} words: 1 to {limit} are allowed");
    let clause_words = query.all_of.iter().map(Vec::len).max().unwrap_or(0);
    assert!(
        clause_words <= limits::WORDS_PER_CLAUSE,
        "a clause of {clause_words} words: at most {} are allowed",
        limits::WORDS_PER_CLAUSE
    );
    let is_empty = query.all_of.iter().any(Vec::is_empty);
    assert!(!is_empty, "a clause without words, which nothing matches: {query:?}");
}

fn check_prompt(ChatPrompt { messages, temperature, top_p, max_tokens, .. }: &ChatPrompt) {
    let limit = limits::MESSAGES_PER_PROMPT;
    let count = messages.len();
    assert!((1..=limit).contains(&count), "a prompt of {count} messages: 1 to {limit} are allowed");
    messages.iter().for_each(|message| check_text(&message.content));
    let reply_limit = limits::REPLY_TOKENS;
    assert!(
        (1..=reply_limit).contains(max_tokens),
        "a reply of {max_tokens} tokens: 1 to {reply_limit} are allowed"
    );
    let is_possible = (0.0..=2.0).contains(temperature) && *top_p > 0.0 && *top_p <= 1.0;
    assert!(
        is_possible,
        "a temperature of {temperature}, from 0 to 2, and top_p of {top_p}, above 0 up to 1"
    );
}

fn check_text(text: &str) {
    let limit = limits::TEXT_BYTES;
    let bytes = text.len();
    assert!(bytes <= limit, "a text of {bytes} bytes in a request: at most {limit} are allowed");
}
