//! The host's rounds, and what it refuses.

use super::limits;
use crate::{Ask, Corpus, CorpusSize, Pair, Prompt, Query, Reply, Request, Search, Verifier};

/// What a rule may do.
pub(super) struct Rules<'a> {
    /// What it may ask beside counts.
    pub(super) asks: &'a [Verifier],
    /// How much it may ask about one subject.
    pub(super) questions: usize,
}

/// Calls `judge` until none of its subjects asks; what it says of each in the end, and all that it
/// asked.
pub(super) fn settle<J>(
    rules: &Rules<'_>,
    subjects: usize,
    size: CorpusSize,
    judge: impl Fn(&[Corpus]) -> Vec<Result<J, Ask>>,
    answer: impl Fn(&Request) -> Reply,
) -> Vec<(J, Vec<Request>)> {
    let mut replies: Vec<Vec<Reply>> = vec![Vec::new(); subjects];
    let mut asked: Vec<Vec<Request>> = vec![Vec::new(); subjects];
    for _ in 0..=limits::ROUNDS {
        let answered = replies.iter().zip(&asked);
        let corpora: Vec<Corpus> =
            answered.map(|(own, requests)| Corpus::recorded(size, own, requests)).collect();
        let said = judge(&corpora);
        assert_eq!(said.len(), subjects, "a rule must give one outcome per sentence");
        if said.iter().all(Result::is_ok) {
            return said.into_iter().flatten().zip(asked).collect();
        }
        for ((own_replies, own_asked), outcome) in replies.iter_mut().zip(&mut asked).zip(said) {
            for request in outcome.err().into_iter().flat_map(|Ask(requests)| requests) {
                check(&request, rules.asks);
                own_replies.push(answer(&request));
                own_asked.push(request);
            }
            let (limit, got) = (rules.questions, own_asked.len());
            assert!(
                got <= limit,
                "{got} questions about one sentence or completion: at most {limit} are allowed"
            );
        }
    }
    panic!("the rule still asks after {} rounds of answers", limits::ROUNDS);
}

fn check(request: &Request, asks: &[Verifier]) {
    let may_ask = |verifier| {
        assert!(
            asks.contains(&verifier),
            "the rule asks {verifier:?}, which its ASKS does not name"
        )
    };
    match request {
        Request::Count(query) => check_query(query),
        Request::Nli(Pair { premise, hypothesis }) => {
            may_ask(Verifier::Nli);
            check_text(premise);
            check_text(hypothesis);
        }
        Request::Chat(prompt) => {
            may_ask(Verifier::Chat);
            check_prompt(prompt);
        }
        Request::Passages(Search { title, query, k }) => {
            may_ask(Verifier::Passages);
            title.iter().for_each(|title| check_text(title));
            check_text(query);
            let limit = limits::PASSAGES_PER_SEARCH;
            assert!((1..=limit).contains(k), "a search for {k} passages: 1 to {limit} are allowed");
        }
    }
}

fn check_query(query: &Query) {
    let (limit, words) = (limits::WORDS_PER_QUERY, query.words().count());
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

fn check_prompt(Prompt { messages, temperature, top_p, max_tokens, .. }: &Prompt) {
    let (limit, got) = (limits::MESSAGES_PER_PROMPT, messages.len());
    assert!((1..=limit).contains(&got), "a prompt of {got} messages: 1 to {limit} are allowed");
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
    let (limit, got) = (limits::TEXT_BYTES, text.len());
    assert!(got <= limit, "a text of {got} bytes in a question: at most {limit} are allowed");
}
