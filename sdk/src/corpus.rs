//! The corpus as a rule sees it, and what else a run grants: the answers that the host has given so
//! far.

use std::cell::Cell;

use crate::{
    CorpusSize, Count, Entailment, Pair, Passage, Prompt, Query, Reply, Request, Search, Sentence,
};

/// Answers a rule's questions with the replies so far, in order: the first reply is the answer to
/// the first question. A question beyond them becomes an [`Ask`].
///
/// A rule starts over whenever more replies are there, so what it asks may depend on what it judges
/// and on the answers to earlier questions alone. Tests that run it with [`crate::testing`] panic
/// where it asks something else than before.
///
/// Counts are always answered. What else a rule asks, its `ASKS` must name
/// ([`crate::SentenceRule::ASKS`]).
#[derive(Debug, Clone)]
pub struct Corpus<'a> {
    size: CorpusSize,
    replies: Cell<&'a [Reply]>,
    /// What was asked for `replies`, where that is known: in tests.
    requests: Cell<&'a [Request]>,
}

/// The replies that a rule still needs. The host gets them and calls the rule again.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask(pub Vec<Request>);

impl<'a> Corpus<'a> {
    /// A corpus of this size that answers with these replies.
    #[must_use]
    pub fn new(size: CorpusSize, replies: &'a [Reply]) -> Self {
        Self::recorded(size, replies, &[])
    }

    /// Panics where the replies are taken for answers to anything else than `requests`.
    pub(crate) fn recorded(
        size: CorpusSize,
        replies: &'a [Reply],
        requests: &'a [Request],
    ) -> Self {
        Self { size, replies: Cell::new(replies), requests: Cell::new(requests) }
    }

    /// How many tokens the counts come from; `None` where the source does not say: a server, for
    /// example.
    #[must_use]
    pub fn tokens(&self) -> Option<u64> {
        self.size.tokens
    }

    /// How many documents the counts come from; `None` where the source does not say.
    #[must_use]
    pub fn documents(&self) -> Option<u64> {
        self.size.documents
    }

    /// How often `query` matches; `None` where the corpus cannot answer it.
    ///
    /// # Errors
    /// [`Ask`] where it has not been looked up yet.
    pub fn count(&self, query: Query) -> Result<Option<u64>, Ask> {
        self.answer(Request::Count(query), count).map_err(|request| Ask(vec![request]))
    }

    /// One count per query, in order; all that is missing is asked for at once, which spares
    /// rounds.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_all(
        &self,
        queries: impl IntoIterator<Item = Query>,
    ) -> Result<Vec<Option<u64>>, Ask> {
        self.answer_all(queries.into_iter().map(Request::Count), count)
    }

    /// The facts of `sentence` that the corpus can count: the index of each valid triplet and its
    /// count, in the extractor's order, all asked for at once. Triplets without a query, and counts
    /// that the corpus does not know, are left out; counts from `enough` on need not be told apart.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_facts(&self, sentence: &Sentence, enough: u64) -> Result<Vec<(usize, u64)>, Ask> {
        let (places, queries): (Vec<usize>, Vec<Query>) = sentence
            .valid_triplets()
            .filter_map(|(place, triplet)| Some((place, triplet.word_query()?.enough(enough))))
            .unzip();
        let counts = self.count_all(queries)?;
        Ok(places
            .into_iter()
            .zip(counts)
            .filter_map(|(place, count)| Some((place, count?)))
            .collect())
    }

    /// What each hypothesis is to its premise, in order, all asked for at once. Needs
    /// [`crate::Verifier::Nli`].
    ///
    /// # Errors
    /// [`Ask`] where some are not there yet.
    pub fn entailments(
        &self,
        pairs: impl IntoIterator<Item = Pair>,
    ) -> Result<Vec<Entailment>, Ask> {
        self.answer_all(pairs.into_iter().map(Request::Nli), |reply| match reply {
            Reply::Nli(entailment) => Some(*entailment),
            _ => None,
        })
    }

    /// What a chat model replies to each prompt, in order, all asked for at once. Needs
    /// [`crate::Verifier::Chat`].
    ///
    /// # Errors
    /// [`Ask`] where some are not there yet.
    pub fn chats(&self, prompts: impl IntoIterator<Item = Prompt>) -> Result<Vec<String>, Ask> {
        self.answer_all(prompts.into_iter().map(Request::Chat), |reply| match reply {
            Reply::Chat(reply) => Some(reply.clone()),
            _ => None,
        })
    }

    /// The passages of each search, best first, all asked for at once. Needs
    /// [`crate::Verifier::Passages`].
    ///
    /// # Errors
    /// [`Ask`] where some are not there yet.
    pub fn passages(
        &self,
        searches: impl IntoIterator<Item = Search>,
    ) -> Result<Vec<Vec<Passage>>, Ask> {
        self.answer_all(searches.into_iter().map(Request::Passages), |reply| match reply {
            Reply::Passages(found) => Some(found.clone()),
            _ => None,
        })
    }

    fn answer_all<A>(
        &self,
        requests: impl Iterator<Item = Request>,
        read: impl Fn(&Reply) -> Option<A>,
    ) -> Result<Vec<A>, Ask> {
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for request in requests {
            match self.answer(request, &read) {
                Ok(answer) => answers.push(answer),
                Err(request) => missing.push(request),
            }
        }
        if missing.is_empty() { Ok(answers) } else { Err(Ask(missing)) }
    }

    /// The answer to the next question, which is `request`, or else the question.
    fn answer<A>(
        &self,
        request: Request,
        read: impl Fn(&Reply) -> Option<A>,
    ) -> Result<A, Request> {
        let Some((reply, rest)) = self.replies.get().split_first() else { return Err(request) };
        self.replies.set(rest);
        if let Some((asked, later)) = self.requests.get().split_first() {
            assert_eq!(request, *asked, "called again, the rule asks something else than before");
            self.requests.set(later);
        }
        Ok(read(reply).expect("called again, the rule asks something else than before"))
    }
}

fn count(reply: &Reply) -> Option<Option<u64>> {
    if let Reply::Count(Count { occurrences, .. }) = reply { Some(*occurrences) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: CorpusSize = CorpusSize { tokens: None, documents: None };

    fn count(occurrences: Option<u64>) -> Reply {
        Reply::Count(Count { occurrences, exact: true })
    }

    #[test]
    fn counts_are_replayed_then_missing_requested() {
        let [paris, peru, rome] = ["Paris", "Peru", "Rome"].map(|word| Query::all_of([word]));
        let counts = [count(None), count(Some(3))];
        let corpus = Corpus::new(NOWHERE, &counts);
        assert_eq!(corpus.count(paris.clone()), Ok(None));
        assert_eq!(corpus.count(peru.clone()), Ok(Some(3)));
        assert_eq!(corpus.count(rome.clone()), Err(Ask(vec![Request::Count(rome.clone())])));
        let corpus = Corpus::new(NOWHERE, &counts[..1]);
        let asked = corpus.count_all([paris, peru.clone(), rome.clone()]);
        assert_eq!(asked, Err(Ask(vec![Request::Count(peru), Request::Count(rome)])));
    }

    #[test]
    #[should_panic(expected = "asks something else than before")]
    fn changed_request_is_detected_in_tests() {
        let [paris, peru] = ["Paris", "Peru"].map(|word| Query::all_of([word]));
        let _ = Corpus::recorded(NOWHERE, &[count(None)], &[Request::Count(paris)]).count(peru);
    }

    #[test]
    fn verifier_requests_are_batched_and_ordered() {
        let pairs = ["Rome", "Peru"].map(|hypothesis| Pair::new("Rome is in Italy.", hypothesis));
        let asked = Corpus::new(NOWHERE, &[]).entailments(pairs.clone()).unwrap_err();
        assert_eq!(asked, Ask(pairs.clone().map(Request::Nli).to_vec()));
        let entailment = |entail| Entailment { entail, neutral: None, contradict: None };
        let replies = [
            Reply::Nli(entailment(0.9)),
            Reply::Nli(entailment(0.1)),
            Reply::Chat("yes".into()),
            count(Some(3)),
        ];
        let corpus = Corpus::new(NOWHERE, &replies);
        assert_eq!(corpus.entailments(pairs), Ok(vec![entailment(0.9), entailment(0.1)]));
        assert_eq!(corpus.chats([Prompt::user("Is it?")]), Ok(vec!["yes".to_owned()]));
        assert_eq!(corpus.count(Query::all_of(["Rome"])), Ok(Some(3)));
        let search = Search { title: None, query: "Rome".into(), k: 2 };
        assert_eq!(corpus.passages([search.clone()]), Err(Ask(vec![Request::Passages(search)])));
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
        let [italy, peru] = ["Italy", "Peru"].map(|word| Query::all_of(["Rome", word]).enough(20));
        assert_eq!(
            Corpus::new(NOWHERE, &[]).count_facts(&sentence, 20),
            Err(Ask(vec![Request::Count(italy), Request::Count(peru)]))
        );
        let counts = [count(None), count(Some(3))];
        assert_eq!(Corpus::new(NOWHERE, &counts).count_facts(&sentence, 20), Ok(vec![(3, 3)]));
    }
}
