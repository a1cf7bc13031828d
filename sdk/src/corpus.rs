//! The corpus as a rule sees it: the host's replies so far.

use std::cell::Cell;

use crate::{
    ChatPrompt, CorpusInfo, Count, CountMode, Entailment, NliPair, Passage, Query, Reply, Request,
    Search, Sentence,
};

/// The host's replies to a rule's requests, in order: the first reply answers the first request. A
/// request without a reply is returned as [`Pending`].
///
/// The rule runs again from the start whenever replies have arrived. So a request may depend on the
/// rule's input and on earlier replies only. [`crate::testing`] panics if a rule sends another
/// request than before.
///
/// Counts are always available. Every other request needs a capability in the rule's `REQUIRES`
/// ([`crate::SentenceRule::REQUIRES`]).
#[derive(Debug, Clone)]
pub struct Corpus<'a> {
    info: CorpusInfo,
    replies: Cell<&'a [Reply]>,
    /// Requests that `replies` answer, if known: in tests.
    requests: Cell<&'a [Request]>,
}

/// Requests whose replies a rule needs before it can finish. The host gets the replies and runs the
/// rule again, from the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending(pub Vec<Request>);

impl<'a> Corpus<'a> {
    /// Returns a corpus that has these replies.
    #[must_use]
    pub fn new(info: CorpusInfo, replies: &'a [Reply]) -> Self {
        Self::recorded(info, replies, &[])
    }

    /// As [`Self::new`], but panics on a request that differs from the one of `requests` at its
    /// position.
    pub(crate) fn recorded(
        info: CorpusInfo,
        replies: &'a [Reply],
        requests: &'a [Request],
    ) -> Self {
        Self { info, replies: Cell::new(replies), requests: Cell::new(requests) }
    }

    /// Returns the size of the corpus, tokens; `None` if the source, a server for example, does not
    /// report it.
    #[must_use]
    pub fn tokens(&self) -> Option<u64> {
        self.info.tokens
    }

    /// Returns the number of documents; `None` if the source does not report it.
    #[must_use]
    pub fn documents(&self) -> Option<u64> {
        self.info.documents
    }

    /// Returns the greatest distance between the clauses of a match, tokens; `None` if the source does
    /// not report it.
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        self.info.window
    }

    /// Returns the definition of a match of several clauses; `None` if the source does not report it.
    #[must_use]
    pub fn mode(&self) -> Option<CountMode> {
        self.info.mode
    }

    /// Returns the number of matches of `query`; `None` if the corpus cannot answer it.
    ///
    /// # Errors
    /// [`Pending`] if there is no reply yet.
    pub fn count(&self, query: Query) -> Result<Option<u64>, Pending> {
        self.reply(Request::Count(query), occurrences).map_err(|request| Pending(vec![request]))
    }

    /// Returns one count per query, in order. Missing replies are requested together, in one round;
    /// equal queries are one request.
    ///
    /// # Errors
    /// [`Pending`] if a reply is missing.
    pub fn count_all(
        &self,
        queries: impl IntoIterator<Item = Query>,
    ) -> Result<Vec<Option<u64>>, Pending> {
        self.all_replies(queries.into_iter().map(Request::Count), occurrences)
    }

    /// Returns the index of each valid triplet of `sentence` with its count, in the extractor's
    /// order. Triplets without a query and unknown counts are left out. Counting may stop at
    /// `limit`.
    ///
    /// # Errors
    /// [`Pending`] if a reply is missing.
    pub fn count_facts(
        &self,
        sentence: &Sentence,
        limit: u64,
    ) -> Result<Vec<(usize, u64)>, Pending> {
        let mut indices = Vec::new();
        let mut queries = Vec::new();
        for (index, triplet) in sentence.valid_triplets() {
            if let Some(query) = triplet.word_query() {
                indices.push(index);
                queries.push(query.limit(limit));
            }
        }
        let counts = self.count_all(queries)?;
        let facts = indices.into_iter().zip(counts);
        Ok(facts.filter_map(|(index, count)| Some((index, count?))).collect())
    }

    /// Returns the entailment of each pair, in order. Needs [`crate::Capability::Nli`].
    ///
    /// # Errors
    /// [`Pending`] if a reply is missing.
    pub fn entailments(
        &self,
        pairs: impl IntoIterator<Item = NliPair>,
    ) -> Result<Vec<Entailment>, Pending> {
        self.all_replies(pairs.into_iter().map(Request::Nli), |reply| match reply {
            Reply::Nli(entailment) => Some(*entailment),
            _ => None,
        })
    }

    /// Returns a chat model's reply to each prompt, in order. Needs [`crate::Capability::Chat`].
    ///
    /// # Errors
    /// [`Pending`] if a reply is missing.
    pub fn chats(
        &self,
        prompts: impl IntoIterator<Item = ChatPrompt>,
    ) -> Result<Vec<String>, Pending> {
        self.all_replies(prompts.into_iter().map(Request::Chat), |reply| match reply {
            Reply::Chat(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// Returns the passages of each search, best first. Needs [`crate::Capability::Passages`].
    ///
    /// # Errors
    /// [`Pending`] if a reply is missing.
    pub fn passages(
        &self,
        searches: impl IntoIterator<Item = Search>,
    ) -> Result<Vec<Vec<Passage>>, Pending> {
        self.all_replies(searches.into_iter().map(Request::Passages), |reply| match reply {
            Reply::Passages(passages) => Some(passages.clone()),
            _ => None,
        })
    }

    fn all_replies<T: Clone>(
        &self,
        requests: impl Iterator<Item = Request>,
        read: impl Fn(&Reply) -> Option<T>,
    ) -> Result<Vec<T>, Pending> {
        // Equal requests are sent once: an extractor repeats facts, and a sentence has a limit.
        let mut distinct: Vec<Request> = Vec::new();
        let mut indices = Vec::new();
        for request in requests {
            let known = distinct.iter().position(|earlier| *earlier == request);
            indices.push(known.unwrap_or(distinct.len()));
            if known.is_none() {
                distinct.push(request);
            }
        }
        let mut replies = Vec::with_capacity(distinct.len());
        let mut missing = Vec::new();
        for request in distinct {
            match self.reply(request, &read) {
                Ok(reply) => replies.push(reply),
                Err(request) => missing.push(request),
            }
        }
        if !missing.is_empty() {
            return Err(Pending(missing));
        }
        Ok(indices.into_iter().map(|index| replies[index].clone()).collect())
    }

    /// Returns the next reply, which answers `request`, or the request if there is none.
    fn reply<T>(&self, request: Request, read: impl Fn(&Reply) -> Option<T>) -> Result<T, Request> {
        let Some((reply, rest)) = self.replies.get().split_first() else { return Err(request) };
        self.replies.set(rest);
        if let Some((earlier, later)) = self.requests.get().split_first() {
            assert_eq!(request, *earlier, "run again, the rule sends another request than before");
            self.requests.set(later);
        }
        Ok(read(reply).expect("run again, the rule sends another request than before"))
    }
}

fn occurrences(reply: &Reply) -> Option<Option<u64>> {
    if let Reply::Count(Count { occurrences, .. }) = reply { Some(*occurrences) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;

    const NOWHERE: CorpusInfo =
        CorpusInfo { tokens: None, documents: None, window: None, mode: None };

    fn count(occurrences: Option<u64>) -> Reply {
        Reply::Count(Count { occurrences, precision: Precision::Exact })
    }

    #[test]
    fn counts_are_replayed_then_missing_requested() {
        let [paris, peru, rome] = ["Paris", "Peru", "Rome"].map(|word| Query::all_of([word]));
        let counts = [count(None), count(Some(3))];
        let corpus = Corpus::new(NOWHERE, &counts);
        assert_eq!(corpus.count(paris.clone()), Ok(None));
        assert_eq!(corpus.count(peru.clone()), Ok(Some(3)));
        assert_eq!(corpus.count(rome.clone()), Err(Pending(vec![Request::Count(rome.clone())])));
        let corpus = Corpus::new(NOWHERE, &counts[..1]);
        let pending = corpus.count_all([paris, peru.clone(), rome.clone()]);
        assert_eq!(pending, Err(Pending(vec![Request::Count(peru), Request::Count(rome)])));
    }

    #[test]
    #[should_panic(expected = "sends another request than before")]
    fn changed_request_is_detected_in_tests() {
        let [paris, peru] = ["Paris", "Peru"].map(|word| Query::all_of([word]));
        let _ = Corpus::recorded(NOWHERE, &[count(None)], &[Request::Count(paris)]).count(peru);
    }

    #[test]
    fn capability_requests_are_batched_and_ordered() {
        let pairs =
            ["Rome", "Peru"].map(|hypothesis| NliPair::new("Rome is in Italy.", hypothesis));
        let pending = Corpus::new(NOWHERE, &[]).entailments(pairs.clone()).unwrap_err();
        assert_eq!(pending, Pending(pairs.clone().map(Request::Nli).to_vec()));
        let entailment = |entail| Entailment { entail, neutral: None, contradict: None };
        let replies = [
            Reply::Nli(entailment(0.9)),
            Reply::Nli(entailment(0.1)),
            Reply::Chat("yes".into()),
            count(Some(3)),
        ];
        let corpus = Corpus::new(NOWHERE, &replies);
        assert_eq!(corpus.entailments(pairs), Ok(vec![entailment(0.9), entailment(0.1)]));
        assert_eq!(corpus.chats([ChatPrompt::user("Is it?")]), Ok(vec!["yes".to_owned()]));
        assert_eq!(corpus.count(Query::all_of(["Rome"])), Ok(Some(3)));
        let search = Search { title: None, query: "Rome".into(), k: 2 };
        assert_eq!(
            corpus.passages([search.clone()]),
            Err(Pending(vec![Request::Passages(search)]))
        );
    }

    #[test]
    fn equal_requests_of_a_call_are_one_request() {
        let [rome, peru] = ["Rome", "Peru"].map(|word| Query::all_of([word]));
        let queries = || [rome.clone(), peru.clone(), rome.clone(), rome.clone().limit(1)];
        let requests =
            [rome.clone(), peru.clone(), rome.clone().limit(1)].map(Request::Count).to_vec();
        let pending = Corpus::new(NOWHERE, &[]).count_all(queries());
        assert_eq!(pending, Err(Pending(requests)));
        let replies = [count(Some(7)), count(None), count(Some(1)), count(Some(9))];
        let corpus = Corpus::new(NOWHERE, &replies);
        assert_eq!(corpus.count_all(queries()), Ok(vec![Some(7), None, Some(7), Some(1)]));
        assert_eq!(corpus.count(peru.clone()), Ok(Some(9)), "the next reply is that of a new call");
        let prompts = [ChatPrompt::user("Is it?"), ChatPrompt::user("Is it?")];
        let pending = Corpus::new(NOWHERE, &[]).chats(prompts).unwrap_err();
        assert_eq!(pending.0.len(), 1);
    }

    #[test]
    fn repeated_fact_is_requested_once() {
        let facts = [("Rome", "in", "Italy"); 65];
        let sentence = crate::testing::sentence("Rome is in Italy.", &facts);
        let query = Query::all_of(["Rome", "Italy"]).limit(20);
        assert_eq!(
            Corpus::new(NOWHERE, &[]).count_facts(&sentence, 20),
            Err(Pending(vec![Request::Count(query)]))
        );
        let counts = [count(Some(50))];
        let counted = Corpus::new(NOWHERE, &counts).count_facts(&sentence, 20).unwrap();
        assert!(counted.into_iter().eq((0..65).map(|index| (index, 50))));
    }

    #[test]
    fn facts_without_a_known_count_are_left_out() {
        let film = [
            ("It", "is", "Rome"),
            ("Rome", "is", "rome"),
            ("Rome", "in", "Italy"),
            ("Rome", "in", "Peru"),
        ];
        let sentence = crate::testing::sentence("Rome is in Italy.", &film);
        let [italy, peru] = ["Italy", "Peru"].map(|word| Query::all_of(["Rome", word]).limit(20));
        assert_eq!(
            Corpus::new(NOWHERE, &[]).count_facts(&sentence, 20),
            Err(Pending(vec![Request::Count(italy), Request::Count(peru)]))
        );
        let counts = [count(None), count(Some(3))];
        assert_eq!(Corpus::new(NOWHERE, &counts).count_facts(&sentence, 20), Ok(vec![(3, 3)]));
    }
}
