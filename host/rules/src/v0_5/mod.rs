//! Version 0.5.0 of the contract: its types, and how they become the host's own.

use wasmtime::component::Component;
use wasmtime::{Engine, PoolConcurrencyLimitError, Store, Trap};

use crate::admit::Kind;
use crate::compile::{TICK, most_instances};
use crate::limits::{Allowance, MEMORY, Refused};
use crate::plugin::Manifest;
use crate::{Fault, Limits};

pub(crate) const VERSION: &str = "0.5.0";

mod response;
mod sentence;

mod bindings {
    #![allow(missing_docs, unused_qualifications, reason = "generated from wit/corver.wit")]
    pub mod sentence {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "sentence-rule",
            ownership: Borrowing { duplicate_if_necessary: true },
        });
    }
    pub mod response {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "response-rule",
        });
    }
}

pub use bindings::response::ResponseRule;
pub use bindings::sentence::SentenceRule;

/// One of the contract's worlds: how a component of it is linked, and the two functions that all have.
pub trait World: Sized {
    /// Linked, and not instantiated yet.
    type Pre: Send + Sync;
    /// Which world this is.
    const KIND: Kind;

    fn link(engine: &Engine, component: &Component) -> wasmtime::Result<Self::Pre>;
    fn instantiate(pre: &Self::Pre, store: &mut Store<Beside>) -> wasmtime::Result<Self>;
    fn describe(&self, store: &mut Store<Beside>) -> wasmtime::Result<Manifest>;
    fn configure(&self, store: &mut Store<Beside>, settings: &str) -> wasmtime::Result<Result<(), String>>;
}

/// What the host keeps beside an instance.
pub struct Beside {
    allowance: Allowance,
    reports: Vec<String>,
    most_reports: usize,
    most_bytes: usize,
}

impl Beside {
    fn report(&mut self, mut message: String) {
        if self.reports.len() < self.most_reports {
            message.truncate(message.floor_char_boundary(self.most_bytes));
            self.reports.push(message);
        }
    }
}

/// A compiled rule, linked and ready to be instantiated any number of times.
pub(crate) struct Ready<W: World> {
    engine: Engine,
    pre: W::Pre,
    limits: Limits,
}

/// One instance. After a fault it must not be called again.
pub(crate) struct Instance<W> {
    store: Store<Beside>,
    rule: W,
    limits: Limits,
}

/// What went wrong, and what the instance had reported until then.
pub(crate) type Failure = (Fault, Vec<String>);

impl<W: World> Ready<W> {
    pub(crate) fn new(engine: &Engine, component: &Component, limits: &Limits) -> wasmtime::Result<Self> {
        Ok(Self { engine: engine.clone(), pre: W::link(engine, component)?, limits: limits.clone() })
    }

    /// A fresh instance, without settings yet.
    pub(crate) fn instantiate(&self) -> Result<Instance<W>, Failure> {
        let limits = self.limits.clone();
        let beside = Beside {
            allowance: Allowance::new(&limits),
            reports: Vec::new(),
            most_reports: limits.reports,
            most_bytes: limits.text_bytes,
        };
        let mut store = Store::new(&self.engine, beside);
        store.limiter(|beside| &mut beside.allowance);
        store.set_hostcall_fuel(limits.output_bytes);
        set_deadline(&mut store, &limits);
        match W::instantiate(&self.pre, &mut store) {
            Ok(rule) => Ok(Instance { store, rule, limits }),
            Err(error) => {
                let fault =
                    known_fault(&error, &limits).unwrap_or_else(|| Fault::Start { detail: format!("{error:#}") });
                Err((fault, store.into_data().reports))
            }
        }
    }
}

impl<W: World> Instance<W> {
    pub(crate) fn describe(&mut self) -> Result<Manifest, Failure> {
        let manifest = self.call(W::describe)?;
        let Manifest { name, version, summary, settings_schema } = &manifest;
        let texts = [("name", name), ("version", version), ("summary", summary), ("settings schema", settings_schema)];
        for (what, text) in texts {
            self.check_text(what, text)?;
        }
        if !is_package_name(name) {
            return Err((Fault::Name { name: name.clone() }, Vec::new()));
        }
        Ok(manifest)
    }

    /// The inner error is the rule's own complaint about the settings.
    pub(crate) fn configure(&mut self, settings: &str) -> Result<Result<(), String>, Failure> {
        let result = self.call(|rule, store| rule.configure(store, settings))?;
        if let Err(message) = &result {
            self.check_text("settings error", message)?;
        }
        Ok(result)
    }

    /// Everything the rule has reported so far.
    pub(crate) fn into_reports(self) -> Vec<String> {
        self.store.into_data().reports
    }

    fn call<T>(&mut self, f: impl FnOnce(&W, &mut Store<Beside>) -> wasmtime::Result<T>) -> Result<T, Failure> {
        set_deadline(&mut self.store, &self.limits);
        self.store.data_mut().reports.clear();
        f(&self.rule, &mut self.store).map_err(|error| {
            let fault = known_fault(&error, &self.limits)
                .unwrap_or_else(|| Fault::Answer { limit: self.limits.output_bytes, detail: format!("{error:#}") });
            (fault, std::mem::take(&mut self.store.data_mut().reports))
        })
    }

    fn check_text(&mut self, what: &'static str, text: &str) -> Result<(), Failure> {
        crate::check::check_text(what, text, self.limits.text_bytes)
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

/// `None` where the engine refused the answer, or could not start it for a reason of its own.
fn known_fault(error: &wasmtime::Error, limits: &Limits) -> Option<Fault> {
    if let Some(&Refused { what, asked, .. }) = error.downcast_ref() {
        return Some(if what == MEMORY {
            Fault::Memory { limit: limits.memory_bytes, asked }
        } else {
            Fault::Table { limit: limits.table_elements, asked }
        });
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Some(Fault::Busy { most: most_instances() });
    }
    Some(match error.downcast_ref::<Trap>()? {
        Trap::Interrupt => Fault::Time { limit_ms: limits.call_ms },
        Trap::StackOverflow => Fault::Stack { limit: limits.stack_bytes },
        &trap => Fault::Trap(trap),
    })
}
