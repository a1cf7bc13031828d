//! Version 0.1.0 of the contract: its types, and how they become the host's own.

use corver_core::{Count, Query, RuleSentence, Section};
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Engine, Store, Trap};

use crate::compile::TICK;
use crate::judge::Outcome;
use crate::limits::{Allowance, MEMORY, Refused};
use crate::rule::Manifest;
use crate::{Fault, Limits};

pub(crate) const VERSION: &str = "0.1.0";

mod bindings {
    #![allow(missing_docs, unused_qualifications, reason = "generated from wit/corver.wit")]
    wasmtime::component::bindgen!({ path: "../../wit", world: "sentence-rule" });
}

use bindings::corver::reward::types as wit;
use bindings::{SentenceRule, SentenceRulePre};

/// What the host keeps beside an instance.
struct Beside {
    allowance: Allowance,
    reports: Vec<String>,
    most_reports: usize,
    most_bytes: usize,
}

impl bindings::corver::reward::types::Host for Beside {}

impl bindings::corver::reward::diagnostics::Host for Beside {
    fn report(&mut self, mut message: String) {
        if self.reports.len() < self.most_reports {
            message.truncate(message.floor_char_boundary(self.most_bytes));
            self.reports.push(message);
        }
    }
}

/// A compiled rule, linked and ready to be instantiated any number of times.
pub(crate) struct Ready {
    pre: SentenceRulePre<Beside>,
    limits: Limits,
}

/// One instance. After a fault it must not be called again.
pub(crate) struct Instance {
    store: Store<Beside>,
    rule: SentenceRule,
    limits: Limits,
}

/// What went wrong, and what the instance had reported until then.
pub(crate) type Failure = (Fault, Vec<String>);

impl Ready {
    pub(crate) fn new(engine: &Engine, component: &Component, limits: &Limits) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        SentenceRule::add_to_linker::<_, HasSelf<Beside>>(&mut linker, |beside| beside)?;
        let pre: InstancePre<Beside> = linker.instantiate_pre(component)?;
        Ok(Self { pre: SentenceRulePre::new(pre)?, limits: limits.clone() })
    }

    /// A fresh instance, without settings yet.
    pub(crate) fn instantiate(&self) -> Result<Instance, Failure> {
        let limits = self.limits.clone();
        let beside = Beside {
            allowance: Allowance::new(&limits),
            reports: Vec::new(),
            most_reports: limits.reports,
            most_bytes: limits.text_bytes,
        };
        let mut store = Store::new(self.pre.engine(), beside);
        store.limiter(|beside| &mut beside.allowance);
        store.set_hostcall_fuel(limits.output_bytes);
        set_deadline(&mut store, &limits);
        match self.pre.instantiate(&mut store) {
            Ok(rule) => Ok(Instance { store, rule, limits }),
            Err(error) => {
                let fault =
                    known_fault(&error, &limits).unwrap_or_else(|| Fault::Start { detail: format!("{error:#}") });
                Err((fault, store.into_data().reports))
            }
        }
    }
}

impl Instance {
    pub(crate) fn describe(&mut self) -> Result<Manifest, Failure> {
        let manifest = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_describe(store))?;
        let wit::Manifest { name, version, summary, settings_schema } = manifest;
        let texts =
            [("name", &name), ("version", &version), ("summary", &summary), ("settings schema", &settings_schema)];
        for (what, text) in texts {
            self.check_text(what, text)?;
        }
        Ok(Manifest { name, version, summary, settings_schema })
    }

    /// The inner error is the rule's own complaint about the settings.
    pub(crate) fn configure(&mut self, settings: &str) -> Result<Result<(), String>, Failure> {
        let result = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_configure(store, settings))?;
        if let Err(message) = &result {
            self.check_text("settings error", message)?;
        }
        Ok(result)
    }

    /// Sentences with the counts they have so far; outcomes as given, unchecked.
    pub(crate) fn score(&mut self, batch: &[(&RuleSentence, &[Count])]) -> Result<Vec<Outcome>, Failure> {
        let batch: Vec<wit::Sentence> = batch.iter().map(|&(sentence, counts)| to_wit(sentence, counts)).collect();
        let outcomes = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_score(store, &batch))?;
        Ok(outcomes.into_iter().map(from_wit).collect())
    }

    /// Everything the rule has reported so far.
    pub(crate) fn into_reports(self) -> Vec<String> {
        self.store.into_data().reports
    }

    fn call<T>(
        &mut self,
        f: impl FnOnce(&SentenceRule, &mut Store<Beside>) -> wasmtime::Result<T>,
    ) -> Result<T, Failure> {
        set_deadline(&mut self.store, &self.limits);
        f(&self.rule, &mut self.store).map_err(|error| {
            let fault = known_fault(&error, &self.limits)
                .unwrap_or_else(|| Fault::Answer { limit: self.limits.output_bytes, detail: format!("{error:#}") });
            (fault, std::mem::take(&mut self.store.data_mut().reports))
        })
    }

    fn check_text(&mut self, what: &'static str, text: &str) -> Result<(), Failure> {
        crate::judge::check_text(what, text, self.limits.text_bytes)
            .map_err(|fault| (fault, std::mem::take(&mut self.store.data_mut().reports)))
    }
}

fn set_deadline(store: &mut Store<Beside>, limits: &Limits) {
    // One more: the tick that is under way.
    store.set_epoch_deadline(limits.call_ms.div_ceil(TICK.as_millis() as u64).saturating_add(1));
}

/// `None` where the engine refused the answer, or could not start.
fn known_fault(error: &wasmtime::Error, limits: &Limits) -> Option<Fault> {
    if let Some(&Refused { what, asked, .. }) = error.downcast_ref() {
        return Some(if what == MEMORY {
            Fault::Memory { limit: limits.memory_bytes, asked }
        } else {
            Fault::Table { limit: limits.table_elements, asked }
        });
    }
    Some(match error.downcast_ref::<Trap>()? {
        Trap::Interrupt => Fault::Time { limit_ms: limits.call_ms },
        Trap::StackOverflow => Fault::Stack { limit: limits.stack_bytes },
        &trap => Fault::Trap(trap),
    })
}

fn to_wit(sentence: &RuleSentence, counts: &[Count]) -> wit::Sentence {
    let triplet = |triplet: &corver_core::Triplet| wit::Triplet {
        head: triplet.head.clone(),
        relation: triplet.relation.clone(),
        tail: triplet.tail.clone(),
    };
    let count = |count: &Count| wit::Count {
        query: wit::Query { all_of: count.query.all_of.clone(), enough: count.query.enough },
        occurrences: count.occurrences,
        exact: count.exact,
    };
    wit::Sentence {
        completion: sentence.completion,
        index: sentence.index,
        text: sentence.text.clone(),
        section: match sentence.section {
            Section::Think => wit::Section::Think,
            Section::Answer => wit::Section::Answer,
            Section::Body => wit::Section::Body,
        },
        triplets: sentence.triplets.iter().map(triplet).collect(),
        counts: counts.iter().map(count).collect(),
    }
}

fn from_wit(outcome: wit::Outcome) -> Outcome {
    match outcome {
        wit::Outcome::Score(wit::Verdict { reward, count, triplet, note }) => {
            Outcome::Score { reward, count, triplet, note }
        }
        wit::Outcome::Abstain(note) => Outcome::Abstain { note },
        wit::Outcome::Ask(queries) => {
            Outcome::Ask(queries.into_iter().map(|wit::Query { all_of, enough }| Query { all_of, enough }).collect())
        }
    }
}
