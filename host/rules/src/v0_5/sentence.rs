//! The world of sentence rules.

use corver_core::{Query, RuleSentence, Section, Triplet};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Store};

use super::bindings::sentence::corver::reward::{diagnostics, types as wit};
use super::bindings::sentence::{SentenceRule, SentenceRulePre};
use super::{Beside, Failure, Instance, World};
use crate::admit::Kind;
use crate::answers::Answer;
use crate::judge::Outcome;
use crate::plugin::Manifest;

impl wit::Host for Beside {}

impl diagnostics::Host for Beside {
    fn report(&mut self, message: String) {
        self.report(message);
    }
}

impl World for SentenceRule {
    type Pre = SentenceRulePre<Beside>;
    const KIND: Kind = Kind::Sentence;

    fn link(engine: &Engine, component: &Component) -> wasmtime::Result<Self::Pre> {
        let mut linker = Linker::new(engine);
        Self::add_to_linker::<_, HasSelf<Beside>>(&mut linker, |beside| beside)?;
        SentenceRulePre::new(linker.instantiate_pre(component)?)
    }

    fn instantiate(pre: &Self::Pre, store: &mut Store<Beside>) -> wasmtime::Result<Self> {
        pre.instantiate(store)
    }

    fn describe(&self, store: &mut Store<Beside>) -> wasmtime::Result<Manifest> {
        let manifest = self.corver_reward_sentence_scoring().call_describe(store)?;
        let wit::Manifest { name, version, summary, settings_schema } = manifest;
        Ok(Manifest { name, version, summary, settings_schema })
    }

    fn configure(&self, store: &mut Store<Beside>, settings: &str) -> wasmtime::Result<Result<(), String>> {
        self.corver_reward_sentence_scoring().call_configure(store, settings)
    }
}

impl Instance<SentenceRule> {
    /// Outcomes as given, unchecked. All texts are laid end to end.
    pub(crate) fn score(&mut self, batch: &[RuleSentence]) -> Result<Vec<Outcome>, Failure> {
        let mut pieces: Vec<&str> = Vec::with_capacity(4 * batch.len());
        for sentence in batch {
            pieces.push(&sentence.text);
            for Triplet { head, relation, tail } in &sentence.triplets {
                pieces.extend([head.as_str(), relation, tail]);
            }
        }
        let sentence = |sentence: &RuleSentence| wit::Sentence {
            completion: sentence.completion,
            index: sentence.index,
            section: match sentence.section {
                Section::Think => wit::Section::Think,
                Section::Answer => wit::Section::Answer,
                Section::Body => wit::Section::Body,
            },
            num_triplets: sentence.triplets.len() as u32,
        };
        let sentences: Vec<wit::Sentence> = batch.iter().map(sentence).collect();
        // Not the length of a piece of 4 GiB; but then the text is too long for `wasmtime`, and the call fails.
        let lengths: Vec<u32> = pieces.iter().map(|piece| piece.len() as u32).collect();
        let batch = wit::Batch { sentences: &sentences, text: &pieces.concat(), lengths: &lengths };
        let outcomes = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_score(store, batch))?;
        Ok(outcomes.into_iter().map(from_wit).collect())
    }

    /// Outcomes as given, unchecked, for the completions in which the last ones asked.
    pub(crate) fn resume(&mut self, answers: impl Iterator<Item = Answer>) -> Result<Vec<Outcome>, Failure> {
        let counts: Vec<wit::Count> =
            answers.map(|Answer { occurrences, exact }| wit::Count { occurrences, exact }).collect();
        let outcomes = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_resume(store, &counts))?;
        Ok(outcomes.into_iter().map(from_wit).collect())
    }
}

fn from_wit(outcome: wit::Outcome) -> Outcome {
    match outcome {
        wit::Outcome::Score(wit::Verdict { reward, count, triplet, note }) => {
            Outcome::Score { reward, count, triplet, note }
        }
        wit::Outcome::Abstain(note) => Outcome::Abstain { note },
        wit::Outcome::Ask(queries) => {
            let query = |wit::Query { all_of, enough }| Query::from_text(all_of).with_enough(enough);
            Outcome::Ask(queries.into_iter().map(query).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use wasmtime::{Inlining, Trap};

    use super::*;
    use crate::v0_5::Ready;
    use crate::{Fault, Limits};

    #[test]
    fn a_rust_panic_reaches_the_host_in_its_own_words() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
        let wasm =
            std::fs::read(&path).unwrap_or_else(|_| panic!("{} is not built: run plugins/build.sh", path.display()));
        let limits = Limits::default();
        let engine = crate::compile::engine(&limits, Inlining::Yes).unwrap();
        let wasm = crate::admit::check(&path, &wasm, Kind::Sentence).unwrap().component().unwrap();
        let component = Component::from_binary(&engine, &wasm).unwrap();
        let mut instance = Ready::<SentenceRule>::new(&engine, &component, &limits).unwrap().instantiate().unwrap();
        instance.describe().unwrap();
        // The host never does this: it panics in the SDK.
        let (fault, said) = instance.score(&[]).unwrap_err();
        assert_eq!(fault, Fault::Trap(Trap::UnreachableCodeReached));
        assert!(said[0].contains("`configure` comes first"), "{said:?}");
    }
}
