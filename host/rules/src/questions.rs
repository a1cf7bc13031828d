//! What rules ask: whether it is acceptable, who answers, and how the answers go back.

use corver_core::{
    Backends, BoxError, Capability, ChatPrompt, ChatRole, CountPrecision, Entailment, Exchange,
    Lookup, Message, NliPair, Passage, Query, Search,
};
use corver_settings::{is_temperature, is_top_p};

use crate::Limits;
use crate::bindings::types;
use crate::check::check_text;
use crate::error::Fault;

/// One question of a rule.
#[derive(Debug)]
pub(crate) enum Question {
    Count(Query),
    Nli(NliPair),
    Chat(ChatPrompt),
    Passages(Search),
}

/// A question with its answer, as a judgement shows it.
#[derive(Debug)]
pub(crate) enum Answered {
    Count(Lookup),
    Other(Exchange),
}

impl From<types::Request> for Question {
    fn from(request: types::Request) -> Self {
        match request {
            types::Request::Count(types::Query { all_of, limit }) => {
                Self::Count(Query { all_of, limit })
            }
            types::Request::Nli(types::NliPair { premise, hypothesis }) => {
                Self::Nli(NliPair { premise, hypothesis })
            }
            types::Request::Chat(types::ChatPrompt {
                messages,
                temperature,
                top_p,
                max_tokens,
                seed,
            }) => {
                let messages = messages.into_iter().map(message).collect();
                Self::Chat(ChatPrompt { messages, temperature, top_p, max_tokens, seed })
            }
            types::Request::Passages(types::Search { title, query, k }) => {
                Self::Passages(Search { title, query, k })
            }
        }
    }
}

fn message(types::Message { role, content }: types::Message) -> Message {
    let role = match role {
        types::ChatRole::System => ChatRole::System,
        types::ChatRole::User => ChatRole::User,
        types::ChatRole::Assistant => ChatRole::Assistant,
    };
    Message { role, content }
}

impl Question {
    /// What a run must grant for it; counts are always granted.
    fn verifier(&self) -> Option<Capability> {
        match self {
            Self::Count(_) => None,
            Self::Nli(_) => Some(Capability::Nli),
            Self::Chat(_) => Some(Capability::Chat),
            Self::Passages(_) => Some(Capability::Passages),
        }
    }

    /// Whether a rule whose manifest names the verifiers `asks` may ask this.
    pub(crate) fn check(&self, asks: &[Capability], limits: &Limits) -> Result<(), Fault> {
        if let Some(verifier) = self.verifier().filter(|verifier| !asks.contains(verifier)) {
            return Err(Fault::Contract(format!(
                "asks {verifier}, which its manifest does not name (`requires`)"
            )));
        }
        let text = |what, text: &String| check_text(what, text, limits.text_bytes);
        match self {
            Self::Count(query) => check_query(query, limits),
            Self::Nli(NliPair { premise, hypothesis }) => {
                text("premise", premise)?;
                text("hypothesis", hypothesis)
            }
            Self::Chat(prompt) => check_prompt(prompt, limits),
            Self::Passages(Search { title, query, k }) => {
                let (limit, got) = (limits.passages_per_search, *k);
                if !(1..=limit).contains(&got) {
                    return Err(Fault::Limit(format!(
                        "searched for {got} passages; from 1 to {limit} are allowed \
                         (limits.passages_per_search)"
                    )));
                }
                title.iter().try_for_each(|title| text("title", title))?;
                text("search", query)
            }
        }
    }
}

fn check_query(query: &Query, limits: &Limits) -> Result<(), Fault> {
    let &Limits { words_per_query: limit, words_per_clause, text_bytes, .. } = limits;
    // An empty clause takes as much room as a word.
    let got = match query.all_of.iter().all(Vec::is_empty) {
        true => 0,
        false => query.all_of.iter().map(|words| words.len().max(1)).sum(),
    };
    if !(1..=limit).contains(&got) {
        return Err(Fault::Limit(format!(
            "asked for a query of {got} words; from 1 to {limit} are allowed \
             (limits.words_per_query)"
        )));
    }
    let most_words = query.all_of.iter().map(Vec::len).max().unwrap_or(0);
    if most_words > words_per_clause {
        return Err(Fault::Limit(format!(
            "asked for a clause of {most_words} words; at most {words_per_clause} are allowed \
             (limits.words_per_clause)"
        )));
    }
    query.all_of.iter().flatten().try_for_each(|word| check_text("query word", word, text_bytes))
}

fn check_prompt(prompt: &ChatPrompt, limits: &Limits) -> Result<(), Fault> {
    let ChatPrompt { messages, temperature, top_p, max_tokens, .. } = prompt;
    let (limit, got) = (limits.messages_per_prompt, messages.len());
    if !(1..=limit).contains(&got) {
        return Err(Fault::Limit(format!(
            "asked with {got} messages; from 1 to {limit} are allowed (limits.messages_per_prompt)"
        )));
    }
    let reply_limit = limits.reply_tokens;
    if !(1..=reply_limit).contains(max_tokens) {
        return Err(Fault::Limit(format!(
            "asked for a reply of {max_tokens} tokens; from 1 to {reply_limit} are allowed \
             (limits.reply_tokens)"
        )));
    }
    if !(is_temperature(f64::from(*temperature)) && is_top_p(f64::from(*top_p))) {
        return Err(Fault::Contract(format!(
            "asked with the temperature {temperature} and top_p {top_p}; a temperature from 0 to \
             2, and top_p above 0 up to 1 are possible"
        )));
    }
    messages
        .iter()
        .try_for_each(|message| check_text("message", &message.content, limits.text_bytes))
}

/// Questions of one batch so far, by kind.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    queries: usize,
    pairs: usize,
    prompts: usize,
    searches: usize,
}

impl Asked {
    /// Adds these, as long as the limits allow it.
    pub(crate) fn add(&mut self, questions: &[Question], limits: &Limits) -> Result<(), Fault> {
        for question in questions {
            *match question {
                Question::Count(_) => &mut self.queries,
                Question::Nli(_) => &mut self.pairs,
                Question::Chat(_) => &mut self.prompts,
                Question::Passages(_) => &mut self.searches,
            } += 1;
        }
        let checks = [
            ("queries", "queries_per_batch", limits.queries_per_batch, self.queries),
            ("pairs of texts", "pairs_per_batch", limits.pairs_per_batch, self.pairs),
            ("prompts", "prompts_per_batch", limits.prompts_per_batch, self.prompts),
            ("searches", "searches_per_batch", limits.searches_per_batch, self.searches),
        ];
        match checks.into_iter().find(|(_, _, limit, got)| got > limit) {
            Some((what, setting, limit, got)) => Err(Fault::Limit(format!(
                "asked {got} {what} in one batch; at most {limit} are allowed (limits.{setting})"
            ))),
            None => Ok(()),
        }
    }
}

/// Has all questions answered, those of a kind together. The answers come in the order of the
/// questions.
pub(crate) fn answer(
    questions: Vec<Question>,
    verifiers: &mut Backends<'_>,
) -> Result<Vec<Answered>, BoxError> {
    let order: Vec<Option<Capability>> = questions.iter().map(Question::verifier).collect();
    let (mut queries, mut pairs, mut prompts, mut searches) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for question in questions {
        match question {
            Question::Count(query) => queries.push(query),
            Question::Nli(pair) => pairs.push(pair),
            Question::Chat(prompt) => prompts.push(prompt),
            Question::Passages(search) => searches.push(search),
        }
    }
    let counts = verifiers.count(&queries)?;
    let entailments = verifiers.entail(&pairs)?;
    let replies = verifiers.reply(&prompts)?;
    let found = verifiers.passages(&searches)?;

    let mut lookups = queries.into_iter().zip(counts).map(|(query, count)| Lookup { query, count });
    let mut entailments =
        pairs.into_iter().zip(entailments).map(|(pair, answer)| Exchange::Nli { pair, answer });
    let mut replies = prompts
        .into_iter()
        .zip(replies)
        .map(|(prompt, reply)| Exchange::Chat { prompt, reply: reply.content });
    let mut found =
        searches.into_iter().zip(found).map(|(search, found)| Exchange::Passages { search, found });
    let answered = order.into_iter().filter_map(|verifier| match verifier {
        None => lookups.next().map(Answered::Count),
        Some(Capability::Nli) => entailments.next().map(Answered::Other),
        Some(Capability::Chat) => replies.next().map(Answered::Other),
        Some(Capability::Passages) => found.next().map(Answered::Other),
    });
    Ok(answered.collect())
}

/// Hands the answers over in the contract's types.
pub(crate) fn with_replies<T>(
    answered: &[Answered],
    hand_over: impl FnOnce(&[types::Reply<'_>]) -> T,
) -> T {
    let passages: Vec<Vec<types::Passage<'_>>> = answered.iter().map(passages).collect();
    let replies: Vec<types::Reply<'_>> =
        answered.iter().zip(&passages).map(|(one, found)| reply(one, found)).collect();
    hand_over(&replies)
}

fn passages(answered: &Answered) -> Vec<types::Passage<'_>> {
    let Answered::Other(Exchange::Passages { found, .. }) = answered else { return Vec::new() };
    found.iter().map(|Passage { title, text }| types::Passage { title, text }).collect()
}

fn reply<'a>(answered: &'a Answered, found: &'a [types::Passage<'a>]) -> types::Reply<'a> {
    match answered {
        &Answered::Count(Lookup { count, .. }) => types::Reply::Count(types::Count {
            occurrences: count.occurrences,
            precision: match count.precision {
                CountPrecision::Exact => types::Precision::Exact,
                CountPrecision::AtLeast => types::Precision::AtLeast,
                CountPrecision::Estimate => types::Precision::Estimate,
            },
        }),
        &Answered::Other(Exchange::Nli {
            answer: Entailment { entail, neutral, contradict },
            ..
        }) => types::Reply::Nli(types::Entailment { entail, neutral, contradict }),
        Answered::Other(Exchange::Chat { reply, .. }) => types::Reply::Chat(reply),
        Answered::Other(Exchange::Passages { .. }) => types::Reply::Passages(found),
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

    fn fault(question: Question) -> String {
        let (Fault::Limit(problem) | Fault::Contract(problem)) =
            question.check(&ALL, &Limits::default()).unwrap_err();
        problem
    }

    #[test]
    fn request_requires_capability_in_manifest() {
        let limits = Limits::default();
        let pair = || Question::Nli(NliPair { premise: "a".into(), hypothesis: "b".into() });
        assert_eq!(pair().check(&[Capability::Nli], &limits), Ok(()));
        let undeclared = "asks nli, which its manifest does not name (`requires`)";
        assert_eq!(
            pair().check(&[Capability::Chat], &limits),
            Err(Fault::Contract(undeclared.into()))
        );
        assert_eq!(Question::Count(Query::new([["a"]])).check(&[], &limits), Ok(()));
    }

    #[test]
    fn verifier_requests_respect_limits() {
        let limits = Limits::default();
        assert_eq!(Question::Chat(prompt()).check(&ALL, &limits), Ok(()));
        let chat = |change: fn(&mut ChatPrompt)| {
            let mut prompt = prompt();
            change(&mut prompt);
            fault(Question::Chat(prompt))
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
            assert!(chat(change).contains("a temperature from 0 to 2"));
        }
        assert!(
            chat(|prompt| prompt.messages[0].content = "x".repeat(70_000))
                .contains("a message of 70000 bytes")
        );
        let long = "x".repeat(70_000);
        assert!(
            fault(Question::Nli(NliPair { premise: long.clone(), hypothesis: String::new() }))
                .contains("a premise")
        );
        let search =
            |k, query: &str| Question::Passages(Search { title: None, query: query.into(), k });
        assert_eq!(search(5, "Rome").check(&ALL, &limits), Ok(()));
        assert!(fault(search(0, "Rome")).contains("limits.passages_per_search"));
        assert!(fault(search(1_000, "Rome")).contains("limits.passages_per_search"));
        assert!(fault(search(5, &long)).contains("a search of"));
    }

    #[test]
    fn batch_requests_are_limited_per_kind() {
        let limits = Limits { prompts_per_batch: 2, ..Limits::default() };
        let mut asked = Asked::default();
        let two = || [Question::Chat(prompt()), Question::Count(Query::new([["a"]]))];
        assert_eq!(asked.add(&two(), &limits), Ok(()));
        assert_eq!(asked.add(&two(), &limits), Ok(()));
        let problem =
            "asked 3 prompts in one batch; at most 2 are allowed (limits.prompts_per_batch)";
        assert_eq!(asked.add(&two(), &limits), Err(Fault::Limit(problem.into())));
    }
}
