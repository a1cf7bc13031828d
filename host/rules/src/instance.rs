//! Instances of a rule's component, their limits and their faults.

use corver_core::{Capability, CreditKind};
use serde::{Deserialize, Serialize};
use wasmtime::component::{Component, HasSelf, Instance as WasmInstance, InstancePre, Linker};
use wasmtime::{Engine, PoolConcurrencyLimitError, Store, Trap};

use crate::Limits;
use crate::admit::PluginKind;
use crate::bindings::{Rules, diagnostics, response_grading, sentence_scoring, types};
use crate::error::{Failure, Fault};
use crate::limits::{Allowance, GrowthError, MEMORY, TICK, max_instances};

/// A rule's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the rule, 1 to 64 of the characters a-z, 0-9, - and _.
    pub name: String,
    /// Version of the rule, not of the contract.
    pub version: String,
    /// One line about the rule's purpose.
    pub summary: String,
    /// JSON schema of the rule's settings.
    pub settings_schema: String,
    /// Capabilities that its requests need, sorted.
    pub requires: Vec<Capability>,
    /// True if the rule reads the sentences' triplets.
    pub reads_triplets: bool,
    /// Kind of credit of the rule's verdicts.
    pub credit: CreditKind,
}

/// An interface that rules export.
pub trait Interface: Sized {
    /// Positions of the interface's functions in a component.
    type Indices: Send + Sync;
    /// The kind of rule that exports it.
    const KIND: PluginKind;

    fn find(pre: &InstancePre<StoreState>) -> wasmtime::Result<Self::Indices>;
    fn load(
        indices: &Self::Indices,
        store: &mut Store<StoreState>,
        instance: &WasmInstance,
    ) -> wasmtime::Result<Self>;
    fn describe(&self, store: &mut Store<StoreState>) -> wasmtime::Result<types::Manifest>;
    fn configure(
        &self,
        store: &mut Store<StoreState>,
        settings: &str,
    ) -> wasmtime::Result<Result<(), String>>;
}

macro_rules! interface {
    ($module:ident, $kind:expr) => {
        impl Interface for $module::Guest {
            type Indices = $module::GuestIndices;
            const KIND: PluginKind = $kind;

            fn find(pre: &InstancePre<StoreState>) -> wasmtime::Result<Self::Indices> {
                $module::GuestIndices::new(pre)
            }

            fn load(
                indices: &Self::Indices,
                store: &mut Store<StoreState>,
                instance: &WasmInstance,
            ) -> wasmtime::Result<Self> {
                indices.load(store, instance)
            }

            fn describe(&self, store: &mut Store<StoreState>) -> wasmtime::Result<types::Manifest> {
                self.call_describe(store)
            }

            fn configure(
                &self,
                store: &mut Store<StoreState>,
                settings: &str,
            ) -> wasmtime::Result<Result<(), String>> {
                self.call_configure(store, settings)
            }
        }
    };
}

interface!(sentence_scoring, PluginKind::Sentence);
interface!(response_grading, PluginKind::Response);

/// State of the host for one instance.
pub struct StoreState {
    allowance: Allowance,
    reports: Vec<String>,
    max_reports: usize,
    max_report_bytes: usize,
}

impl types::Host for StoreState {}

impl diagnostics::Host for StoreState {
    fn report(&mut self, mut message: String) {
        if self.reports.len() < self.max_reports {
            message.truncate(message.floor_char_boundary(self.max_report_bytes));
            self.reports.push(message);
        }
    }
}

/// A compiled rule, linked and ready to be instantiated any number of times.
pub(crate) struct LinkedRule<I: Interface> {
    engine: Engine,
    pre: InstancePre<StoreState>,
    indices: I::Indices,
    limits: Limits,
}

/// One instance. After a fault it must not be called again.
pub(crate) struct Instance<I> {
    store: Store<StoreState>,
    rule: I,
    limits: Limits,
}

impl<I: Interface> LinkedRule<I> {
    pub(crate) fn new(
        engine: &Engine,
        component: &Component,
        limits: &Limits,
    ) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        Rules::add_to_linker::<_, HasSelf<StoreState>>(&mut linker, |state| state)?;
        let pre = linker.instantiate_pre(component)?;
        Ok(Self { engine: engine.clone(), indices: I::find(&pre)?, pre, limits: limits.clone() })
    }

    /// Creates an instance. It is not configured yet.
    pub(crate) fn instantiate(&self) -> Result<Instance<I>, Failure> {
        let limits = self.limits.clone();
        let state = StoreState {
            allowance: Allowance::new(&limits),
            reports: Vec::new(),
            max_reports: limits.reports,
            max_report_bytes: limits.text_bytes,
        };
        let mut store = Store::new(&self.engine, state);
        store.limiter(|data| &mut data.allowance);
        store.set_hostcall_fuel(limits.output_bytes);
        set_deadline(&mut store, &limits);
        let loaded = match self.pre.instantiate(&mut store) {
            Ok(instance) => I::load(&self.indices, &mut store, &instance),
            Err(error) => Err(error),
        };
        match loaded {
            Ok(rule) => Ok(Instance { store, rule, limits }),
            Err(error) => {
                let fault = known_fault(&error, &limits).unwrap_or_else(|| {
                    Fault::Contract(format!("cannot be instantiated: {error:#}"))
                });
                Err(Failure { fault, reports: store.into_data().reports })
            }
        }
    }
}

impl<I: Interface> Instance<I> {
    pub(crate) fn describe(&mut self) -> Result<Manifest, Failure> {
        let types::Manifest {
            name,
            version,
            summary,
            settings_schema,
            requires,
            reads_triplets,
            credit,
        } = self.call(I::describe)?;
        let texts = [
            ("name", &name),
            ("version", &version),
            ("summary", &summary),
            ("settings schema", &settings_schema),
        ];
        for (field, text) in texts {
            self.check_text(field, text)?;
        }
        if !is_package_name(&name) {
            let problem = format!(
                "has the name {name:?}; a rule's name is 1 to 64 of the characters a-z, 0-9, - \
                 and _, and not `judge` or `format`"
            );
            return Err(Failure { fault: Fault::Contract(problem), reports: Vec::new() });
        }
        let mut requires: Vec<Capability> = requires.into_iter().map(capability).collect();
        requires.sort_unstable();
        requires.dedup();
        let credit = credit_kind(credit);
        if I::KIND == PluginKind::Response && credit != CreditKind::AllTokens {
            let problem = "is a response rule, whose manifest must declare the credit `all-tokens`";
            return Err(Failure {
                fault: Fault::Contract(problem.to_owned()),
                reports: Vec::new(),
            });
        }
        Ok(Manifest { name, version, summary, settings_schema, requires, reads_triplets, credit })
    }

    /// Passes the settings to the rule. The inner error is the rule's own message about them.
    pub(crate) fn configure(&mut self, settings: &str) -> Result<Result<(), String>, Failure> {
        let result = self.call(|rule, store| rule.configure(store, settings))?;
        if let Err(message) = &result {
            self.check_text("settings error", message)?;
        }
        Ok(result)
    }

    /// Returns the messages that the rule has reported since the last call began.
    pub(crate) fn into_reports(self) -> Vec<String> {
        self.store.into_data().reports
    }

    /// Calls an export within the limits, with the engine's clock restarted.
    pub(crate) fn call<T>(
        &mut self,
        export: impl FnOnce(&I, &mut Store<StoreState>) -> wasmtime::Result<T>,
    ) -> Result<T, Failure> {
        set_deadline(&mut self.store, &self.limits);
        self.store.data_mut().reports.clear();
        export(&self.rule, &mut self.store).map_err(|error| {
            let fault = known_fault(&error, &self.limits).unwrap_or_else(|| {
                Fault::Contract(format!(
                    "returned a value that cannot be read, with at most {} bytes \
                     (limits.output_bytes): {error:#}",
                    self.limits.output_bytes
                ))
            });
            self.fail(fault)
        })
    }

    fn check_text(&mut self, name: &'static str, text: &str) -> Result<(), Failure> {
        crate::check::check_text(name, text, self.limits.text_bytes)
            .map_err(|fault| self.fail(fault))
    }

    fn fail(&mut self, fault: Fault) -> Failure {
        Failure { fault, reports: std::mem::take(&mut self.store.data_mut().reports) }
    }
}

fn capability(capability: types::Capability) -> Capability {
    match capability {
        types::Capability::Nli => Capability::Nli,
        types::Capability::Chat => Capability::Chat,
        types::Capability::Passages => Capability::Passages,
    }
}

fn credit_kind(kind: types::CreditKind) -> CreditKind {
    match kind {
        types::CreditKind::AllTokens => CreditKind::AllTokens,
        types::CreditKind::TokenRewards => CreditKind::TokenRewards,
        types::CreditKind::AdvantageSign => CreditKind::AdvantageSign,
    }
}

fn is_package_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'))
        // Metrics of the response rules have these names.
        && !["judge", "format"].contains(&name)
}

fn set_deadline(store: &mut Store<StoreState>, limits: &Limits) {
    // One more, because the current tick has already begun.
    store.set_epoch_deadline(limits.call_ms.div_ceil(TICK.as_millis() as u64).saturating_add(1));
}

/// Returns the fault that an error of the engine means. `None`: the returned value was invalid, or
/// the engine failed to create the instance for another reason.
fn known_fault(error: &wasmtime::Error, limits: &Limits) -> Option<Fault> {
    if let Some(&GrowthError { unit, requested, .. }) = error.downcast_ref() {
        let (limit, setting) = match unit {
            MEMORY => (limits.memory_bytes, "memory_bytes"),
            _ => (limits.table_elements, "table_elements"),
        };
        return Some(Fault::Limit(format!(
            "requested {requested} more {unit}; at most {limit} are allowed in total \
             (limits.{setting})"
        )));
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Some(Fault::Limit(format!(
            "cannot be instantiated: all {} instances are in use; \
             score fewer large batches at the same time",
            max_instances()
        )));
    }
    Some(match error.downcast_ref::<Trap>()? {
        Trap::Interrupt => Fault::Limit(format!(
            "ran longer than {} ms in one call (limits.call_ms)",
            limits.call_ms
        )),
        Trap::StackOverflow => Fault::Limit(format!(
            "used up its stack of {} bytes (limits.stack_bytes)",
            limits.stack_bytes
        )),
        trap => Fault::Contract(format!("stopped with a trap: {trap}")),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use wasmtime::Inlining;

    use super::*;

    #[test]
    fn guest_panic_message_reaches_host() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
        let wasm = std::fs::read(&path)
            .unwrap_or_else(|_| panic!("{} is not built: run plugins/build.sh", path.display()));
        let limits = Limits::default();
        let engine = crate::engine::engine(&limits, Inlining::Yes).unwrap();
        let component =
            Component::from_binary(&engine, &crate::admit::component(&wasm).unwrap()).unwrap();
        let linked =
            LinkedRule::<sentence_scoring::Guest>::new(&engine, &component, &limits).unwrap();
        let mut instance = linked.instantiate().unwrap();
        instance.describe().unwrap();
        // The host never does this: it panics in the SDK.
        let failure = instance.call(|rule, store| rule.call_resume(store, &[])).unwrap_err();
        let trap = Trap::UnreachableCodeReached;
        assert_eq!(failure.fault, Fault::Contract(format!("stopped with a trap: {trap}")));
        let reports = failure.reports;
        assert!(reports[0].contains("`resume` follows pending outcomes"), "{reports:?}");
    }
}
