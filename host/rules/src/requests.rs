//! Requests of rules: checks, the backends that answer them, and the replies in the contract's types.

use corver_core::{
    Backends, BoxError, Capability, ChatPrompt, ChatRole, CountPrecision, Entailment, Exchange,
    Lookup, Message, NliPair, Passage, Query, Search,
};
use corver_settings::{is_temperature, is_top_p};

use crate::Limits;
use crate::bindings::types;
use crate::check::check_text;
use crate::error::Fault;

/// A request of a rule.
#[derive(Debug)]
pub(crate) enum RuleRequest {
    Count(Query),
    Nli(NliPair),
    Chat(ChatPrompt),
    Passages(Search),
}

/// A request with its reply, as a verdict or grade shows it.
#[derive(Debug)]
pub(crate) enum AnsweredRequest {
    Count(Lookup),
    Other(Exchange),
}

impl From<types::Request> for RuleRequest {
    fn from(request: types::Request) -> Self {
        match request {
            types::Request::Count(types::Query { all_of, limit }) => {
                Self::Count(Query { all_of, limit })
            }
            types::Request::Nli(types::NliPair { premise, hypothesis }) => {
                Self::Nli(NliPair { premise, hypothesis })
            }
            types::Request::Chat(prompt) => Self::Chat(ChatPrompt {
                messages: prompt.messages.into_iter().map(message_from_wire).collect(),
                temperature: prompt.temperature,
                top_p: prompt.top_p,
                max_tokens: prompt.max_tokens,
                seed: prompt.seed,
            }),
            types::Request::Passages(types::Search { title, query, k }) => {
                Self::Passages(Search { title, query, k })
            }
        }
    }
}

fn message_from_wire(message: types::Message) -> Message {
    let role = match message.role {
        types::ChatRole::System => ChatRole::System,
        types::ChatRole::User => ChatRole::User,
        types::ChatRole::Assistant => ChatRole::Assistant,
    };
    Message { role, content: message.content }
}

impl RuleRequest {
    /// Returns the capability that it needs; `None` for a count, which needs none.
    fn capability(&self) -> Option<Capability> {
        match self {
            Self::Count(_) => None,
            Self::Nli(_) => Some(Capability::Nli),
            Self::Chat(_) => Some(Capability::Chat),
            Self::Passages(_) => Some(Capability::Passages),
        }
    }

    /// Fails if the manifest does not require its capability, or it exceeds a limit.
    pub(crate) fn check(&self, requires: &[Capability], limits: &Limits) -> Result<(), Fault> {
        if let Some(capability) = self.capability()
            && !requires.contains(&capability)
        {
            return Err(Fault::Contract(format!(
                "requests {capability}, which its manifest does not list (`requires`)"
            )));
        }
        let text_bytes = limits.text_bytes;
        match self {
            Self::Count(query) => check_query(query, limits),
            Self::Nli(NliPair { premise, hypothesis }) => {
                check_text("premise", premise, text_bytes)?;
                check_text("hypothesis", hypothesis, text_bytes)
            }
            Self::Chat(prompt) => check_prompt(prompt, limits),
            Self::Passages(Search { title, query, k }) => {
                let limit = limits.passages_per_search;
                if !(1..=limit).contains(k) {
                    return Err(Fault::Limit(format!(
                        "searched for {k} passages; from 1 to {limit} are allowed \
                         (limits.passages_per_search)"
                    )));
                }
                if let Some(title) = title {
                    check_text("title", title, text_bytes)?;
                }
                check_text("search", query, text_bytes)
            }
        }
    }
}

fn check_query(query: &Query, limits: &Limits) -> Result<(), Fault> {
    let &Limits { words_per_query: limit, words_per_clause, text_bytes, .. } = limits;
    let num_words = if query.all_of.iter().all(Vec::is_empty) {
        0
    } else {
        // An empty clause takes as much memory as a word.
        query.all_of.iter().map(|words| words.len().max(1)).sum()
    };
    if !(1..=limit).contains(&num_words) {
        return Err(Fault::Limit(format!(
            "requested the count of a query of {num_words} words; from 1 to {limit} are allowed \
             (limits.words_per_query)"
        )));
    }
    let longest_clause = query.all_of.iter().map(Vec::len).max().unwrap_or(0);
    if longest_clause > words_per_clause {
        return Err(Fault::Limit(format!(
            "requested the count of a clause of {longest_clause} words; at most \
             {words_per_clause} are allowed (limits.words_per_clause)"
        )));
    }
    query.all_of.iter().flatten().try_for_each(|word| check_text("query word", word, text_bytes))
}

fn check_prompt(prompt: &ChatPrompt, limits: &Limits) -> Result<(), Fault> {
    let ChatPrompt { messages, temperature, top_p, max_tokens, .. } = prompt;
    let message_limit = limits.messages_per_prompt;
    if !(1..=message_limit).contains(&messages.len()) {
        return Err(Fault::Limit(format!(
            "requested a chat reply to {} messages; from 1 to {message_limit} are allowed \
             (limits.messages_per_prompt)",
            messages.len()
        )));
    }
    let reply_limit = limits.reply_tokens;
    if !(1..=reply_limit).contains(max_tokens) {
        return Err(Fault::Limit(format!(
            "requested a chat reply of {max_tokens} tokens; from 1 to {reply_limit} are allowed \
             (limits.reply_tokens)"
        )));
    }
    if !(is_temperature(f64::from(*temperature)) && is_top_p(f64::from(*top_p))) {
        return Err(Fault::Contract(format!(
            "requested a chat reply with temperature {temperature} and top_p {top_p}; a \
             temperature from 0 to 2, and top_p above 0 up to 1 are allowed"
        )));
    }
    messages
        .iter()
        .try_for_each(|message| check_text("message", &message.content, limits.text_bytes))
}

/// Numbers of requests in one batch so far.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    queries: usize,
    pairs: usize,
    prompts: usize,
    searches: usize,
}

impl RequestCounts {
    /// Adds these requests. Fails if a limit does not allow as many.
    pub(crate) fn add(&mut self, requests: &[RuleRequest], limits: &Limits) -> Result<(), Fault> {
        for request in requests {
            match request {
                RuleRequest::Count(_) => self.queries += 1,
                RuleRequest::Nli(_) => self.pairs += 1,
                RuleRequest::Chat(_) => self.prompts += 1,
                RuleRequest::Passages(_) => self.searches += 1,
            }
        }
        for (name, setting, limit, number) in [
            ("counts", "queries_per_batch", limits.queries_per_batch, self.queries),
            ("entailments", "pairs_per_batch", limits.pairs_per_batch, self.pairs),
            ("chat replies", "prompts_per_batch", limits.prompts_per_batch, self.prompts),
            ("searches", "searches_per_batch", limits.searches_per_batch, self.searches),
        ] {
            if number > limit {
                return Err(Fault::Limit(format!(
                    "requested {number} {name} in one batch; at most {limit} are allowed \
                     (limits.{setting})"
                )));
            }
        }
        Ok(())
    }
}

/// Sends requests to the backends, those to one backend together. Returns them with their replies,
/// in the order of the requests.
pub(crate) fn send_requests(
    requests: Vec<RuleRequest>,
    backends: &mut Backends<'_>,
) -> Result<Vec<AnsweredRequest>, BoxError> {
    let order: Vec<Option<Capability>> = requests.iter().map(RuleRequest::capability).collect();
    let mut queries = Vec::new();
    let mut pairs = Vec::new();
    let mut prompts = Vec::new();
    let mut searches = Vec::new();
    for request in requests {
        match request {
            RuleRequest::Count(query) => queries.push(query),
            RuleRequest::Nli(pair) => pairs.push(pair),
            RuleRequest::Chat(prompt) => prompts.push(prompt),
            RuleRequest::Passages(search) => searches.push(search),
        }
    }
    let counts = backends.count(&queries)?;
    let entailments = backends.entail(&pairs)?;
    let replies = backends.reply(&prompts)?;
    let passages = backends.passages(&searches)?;

    let mut lookups = queries.into_iter().zip(counts).map(|(query, count)| Lookup { query, count });
    let mut nli_exchanges =
        pairs.into_iter().zip(entailments).map(|(pair, answer)| Exchange::Nli { pair, answer });
    let mut chat_exchanges = prompts
        .into_iter()
        .zip(replies)
        .map(|(prompt, reply)| Exchange::Chat { prompt, reply: reply.content });
    let mut passage_exchanges = searches
        .into_iter()
        .zip(passages)
        .map(|(search, found)| Exchange::Passages { search, found });
    let mut answered = Vec::with_capacity(order.len());
    for capability in order {
        answered.extend(match capability {
            None => lookups.next().map(AnsweredRequest::Count),
            Some(Capability::Nli) => nli_exchanges.next().map(AnsweredRequest::Other),
            Some(Capability::Chat) => chat_exchanges.next().map(AnsweredRequest::Other),
            Some(Capability::Passages) => passage_exchanges.next().map(AnsweredRequest::Other),
        });
    }
    Ok(answered)
}

/// Calls `call` with the replies in the contract's types, which borrow their texts.
pub(crate) fn with_wire_replies<T>(
    answered: &[AnsweredRequest],
    call: impl FnOnce(&[types::Reply<'_>]) -> T,
) -> T {
    let passages: Vec<Vec<types::Passage<'_>>> = answered.iter().map(wire_passages).collect();
    let mut replies = Vec::with_capacity(answered.len());
    for (request, found) in answered.iter().zip(&passages) {
        replies.push(wire_reply(request, found));
    }
    call(&replies)
}

fn wire_passages(answered: &AnsweredRequest) -> Vec<types::Passage<'_>> {
    let AnsweredRequest::Other(Exchange::Passages { found, .. }) = answered else {
        return Vec::new();
    };
    found.iter().map(|Passage { title, text }| types::Passage { title, text }).collect()
}

fn wire_reply<'a>(
    answered: &'a AnsweredRequest,
    found: &'a [types::Passage<'a>],
) -> types::Reply<'a> {
    match answered {
        &AnsweredRequest::Count(Lookup { count, .. }) => types::Reply::Count(types::Count {
            occurrences: count.occurrences,
            precision: match count.precision {
                CountPrecision::Exact => types::Precision::Exact,
                CountPrecision::AtLeast => types::Precision::AtLeast,
                CountPrecision::Estimate => types::Precision::Estimate,
            },
        }),
        &AnsweredRequest::Other(Exchange::Nli {
            answer: Entailment { entail, neutral, contradict },
            ..
        }) => types::Reply::Nli(types::Entailment { entail, neutral, contradict }),
        AnsweredRequest::Other(Exchange::Chat { reply, .. }) => types::Reply::Chat(reply),
        AnsweredRequest::Other(Exchange::Passages { .. }) => types::Reply::Passages(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Capability; 3] = [Capability::Nli, Capability::Chat, Capability::Passages];

    fn prompt() -> ChatPrompt {
        let messages = vec![Message { role: ChatRole::User, content: "Is it?".into() }];
        ChatPrompt { messages, temperature: 0.0, top_p: 1.0, max_tokens: 16, seed: None }
    }

    fn fault(request: RuleRequest) -> String {
        let (Fault::Limit(problem) | Fault::Contract(problem)) =
            request.check(&ALL, &Limits::default()).unwrap_err();
        problem
    }

    #[test]
    fn request_requires_capability_in_manifest() {
        let limits = Limits::default();
        let pair = || RuleRequest::Nli(NliPair { premise: "a".into(), hypothesis: "b".into() });
        assert_eq!(pair().check(&[Capability::Nli], &limits), Ok(()));
        let undeclared = "requests nli, which its manifest does not list (`requires`)";
        assert_eq!(
            pair().check(&[Capability::Chat], &limits),
            Err(Fault::Contract(undeclared.into()))
        );
        assert_eq!(RuleRequest::Count(Query::new([["a"]])).check(&[], &limits), Ok(()));
    }

    #[test]
    fn backend_requests_respect_limits() {
        let limits = Limits::default();
        assert_eq!(RuleRequest::Chat(prompt()).check(&ALL, &limits), Ok(()));
        let chat = |change: fn(&mut ChatPrompt)| {
            let mut prompt = prompt();
            change(&mut prompt);
            fault(RuleRequest::Chat(prompt))
        };
        assert!(chat(|prompt| prompt.messages.clear()).contains("limits.messages_per_prompt"));
        assert!(chat(|prompt| prompt.max_tokens = 100_000).contains("limits.reply_tokens"));
        assert!(chat(|prompt| prompt.max_tokens = 0).contains("limits.reply_tokens"));
        for change in [
            (|prompt| prompt.temperature = f32::NAN) as fn(&mut ChatPrompt),
            |prompt| prompt.temperature = 2.5,
            |prompt| prompt.top_p = 0.0,
            |prompt| prompt.top_p = f32::INFINITY,
        ] {
            assert!(chat(change).contains("from 0 to 2"));
        }
        assert!(
            chat(|prompt| prompt.messages[0].content = "x".repeat(70_000))
                .contains("a message of 70000 bytes")
        );
        let long = "x".repeat(70_000);
        assert!(
            fault(RuleRequest::Nli(NliPair { premise: long.clone(), hypothesis: String::new() }))
                .contains("a premise")
        );
        let search =
            |k, query: &str| RuleRequest::Passages(Search { title: None, query: query.into(), k });
        assert_eq!(search(5, "Rome").check(&ALL, &limits), Ok(()));
        assert!(fault(search(0, "Rome")).contains("limits.passages_per_search"));
        assert!(fault(search(1_000, "Rome")).contains("limits.passages_per_search"));
        assert!(fault(search(5, &long)).contains("a search of"));
    }

    #[test]
    fn batch_requests_are_limited_per_kind() {
        let limits = Limits { prompts_per_batch: 2, ..Limits::default() };
        let mut counts = RequestCounts::default();
        let two_requests =
            || [RuleRequest::Chat(prompt()), RuleRequest::Count(Query::new([["a"]]))];
        assert_eq!(counts.add(&two_requests(), &limits), Ok(()));
        assert_eq!(counts.add(&two_requests(), &limits), Ok(()));
        let problem = "requested 3 chat replies in one batch; at most 2 are allowed \
             (limits.prompts_per_batch)";
        assert_eq!(counts.add(&two_requests(), &limits), Err(Fault::Limit(problem.into())));
    }
}
