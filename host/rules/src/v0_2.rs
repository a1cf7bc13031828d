//! Version 0.2.0 of the contract: its types, and how they become the host's own.

use corver_core::{Count, Query, Section, Triplet};
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Engine, Store, Trap};

use crate::compile::TICK;
use crate::judge::{Outcome, Posed};
use crate::limits::{Allowance, MEMORY, Refused};
use crate::rule::Manifest;
use crate::{Fault, Limits};

pub(crate) const VERSION: &str = "0.2.0";

mod bindings {
    #![allow(missing_docs, unused_qualifications, reason = "generated from wit/corver.wit")]
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "sentence-rule",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
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
        if !is_package_name(&name) {
            return Err((Fault::Name { name }, Vec::new()));
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

    /// Outcomes as given, unchecked.
    ///
    /// The call borrows everything, in flat lists of the whole batch that the nested ones are slices of.
    pub(crate) fn score(&mut self, batch: &[Posed]) -> Result<Vec<Outcome>, Failure> {
        let asked = batch.iter().flat_map(|posed| posed.counts());
        let counts: Vec<wit::Count> =
            asked.map(|&Count { occurrences, exact, .. }| wit::Count { occurrences, exact }).collect();
        let counts = split(&counts, batch.iter().map(|posed| posed.counts().len()));

        let found = || batch.iter().flat_map(|posed| &posed.sentence.triplets);
        let triplets: Vec<wit::Triplet> =
            found().map(|Triplet { head, relation, tail }| wit::Triplet { head, relation, tail }).collect();
        let triplets = split(&triplets, batch.iter().map(|posed| posed.sentence.triplets.len()));

        let sentences: Vec<wit::Sentence> = batch
            .iter()
            .zip(triplets.into_iter().zip(counts))
            .map(|(&Posed { sentence, .. }, (triplets, counts))| wit::Sentence {
                completion: sentence.completion,
                index: sentence.index,
                text: &sentence.text,
                section: match sentence.section {
                    Section::Think => wit::Section::Think,
                    Section::Answer => wit::Section::Answer,
                    Section::Body => wit::Section::Body,
                },
                triplets,
                counts,
            })
            .collect();
        let outcomes = self.call(|rule, store| rule.corver_reward_sentence_scoring().call_score(store, &sentences))?;
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

fn is_package_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !["judge", "format"].contains(&name)
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

/// Cuts a list into pieces of these lengths, which add up to the whole.
fn split<T>(mut list: &[T], lengths: impl Iterator<Item = usize>) -> Vec<&[T]> {
    lengths.map(|length| list.split_off(..length).expect("the lengths add up to the list")).collect()
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn lists_are_split_where_told() {
        assert_eq!(split(&[1, 2, 3], [0, 2, 1, 0].into_iter()), [&[][..], &[1, 2], &[3], &[]]);
    }

    #[test]
    fn a_rust_panic_reaches_the_host_in_its_own_words() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
        let wasm =
            std::fs::read(&path).unwrap_or_else(|_| panic!("{} is not built: run plugins/build.sh", path.display()));
        let limits = Limits::default();
        let engine = crate::compile::engine(&limits).unwrap();
        let wasm = crate::admit::check(&path, &wasm).unwrap().component().unwrap();
        let component = Component::from_binary(&engine, &wasm).unwrap();
        let mut instance = Ready::new(&engine, &component, &limits).unwrap().instantiate().unwrap();
        instance.describe().unwrap();
        // The host never does this: it panics in the SDK.
        let (fault, said) = instance.score(&[]).unwrap_err();
        assert_eq!(fault, Fault::Trap(Trap::UnreachableCodeReached));
        assert!(said[0].contains("`configure` comes before `score`"), "{said:?}");
    }
}
