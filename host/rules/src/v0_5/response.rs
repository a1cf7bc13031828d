//! The world of response rules.

use corver_core::response::extract_answer;
use corver_core::{Completion, Grade, Section};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Store};

use super::bindings::response::corver::reward::{diagnostics, types};
use super::bindings::response::exports::corver::reward::response_grading as wit;
use super::bindings::response::{ResponseRule, ResponseRulePre};
use super::{Beside, Failure, Instance, World};
use crate::admit::Kind;
use crate::plugin::Manifest;

impl types::Host for Beside {}

impl diagnostics::Host for Beside {
    fn report(&mut self, message: String) {
        self.report(message);
    }
}

impl World for ResponseRule {
    type Pre = ResponseRulePre<Beside>;
    const KIND: Kind = Kind::Response;

    fn link(engine: &Engine, component: &Component) -> wasmtime::Result<Self::Pre> {
        let mut linker = Linker::new(engine);
        Self::add_to_linker::<_, HasSelf<Beside>>(&mut linker, |beside| beside)?;
        ResponseRulePre::new(linker.instantiate_pre(component)?)
    }

    fn instantiate(pre: &Self::Pre, store: &mut Store<Beside>) -> wasmtime::Result<Self> {
        pre.instantiate(store)
    }

    fn describe(&self, store: &mut Store<Beside>) -> wasmtime::Result<Manifest> {
        let manifest = self.corver_reward_response_grading().call_describe(store)?;
        let types::Manifest { name, version, summary, settings_schema } = manifest;
        Ok(Manifest { name, version, summary, settings_schema })
    }

    fn configure(&self, store: &mut Store<Beside>, settings: &str) -> wasmtime::Result<Result<(), String>> {
        self.corver_reward_response_grading().call_configure(store, settings)
    }
}

impl Instance<ResponseRule> {
    /// Grades as given, unchecked.
    pub(crate) fn assess(&mut self, batch: &[Completion<'_>]) -> Result<Vec<Grade>, Failure> {
        let responses: Vec<wit::Response> = batch
            .iter()
            .map(|&Completion { question, golds, text, sentences }| wit::Response {
                question: question.to_owned(),
                golds: golds.to_vec(),
                text: text.to_owned(),
                answer: extract_answer(text).to_owned(),
                sentences: sentences
                    .iter()
                    .map(|one| wit::Passage { section: section(one.section), text: one.text.clone() })
                    .collect(),
            })
            .collect();
        let grades = self.call(|rule, store| rule.corver_reward_response_grading().call_assess(store, &responses))?;
        let from_wit = |grade| {
            let wit::Grade { reward, label, note } = grade;
            Grade { reward: f64::from(reward), label, note }
        };
        Ok(grades.into_iter().map(from_wit).collect())
    }
}

fn section(section: Section) -> types::Section {
    match section {
        Section::Think => types::Section::Think,
        Section::Answer => types::Section::Answer,
        Section::Body => types::Section::Body,
    }
}
