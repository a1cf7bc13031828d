//! A rule from its file to its verdicts.

use std::path::{Path, PathBuf};

use corver_core::{Counter, PartError, RuleSentence, Rules, Verdict};
use serde::{Deserialize, Serialize};

use crate::admit::{Admitted, admit};
use crate::judge::{Stop, judge};
use crate::v0_1::{Failure, Ready};
use crate::{Limits, RuleError, compile};

/// How to load a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadOptions {
    /// Bounds on what the rule may use and answer.
    pub limits: Limits,
    /// Where compiled rules are kept between runs; `None` compiles every time. Made where it does not exist.
    pub cache_dir: Option<PathBuf>,
    /// The rule's settings, a JSON object; `null` stands for the defaults.
    pub settings: serde_json::Value,
}

/// Who a rule says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its package's name.
    pub name: String,
    /// Its package's version.
    pub version: String,
    /// One line.
    pub summary: String,
    /// JSON schema of its settings.
    pub settings_schema: String,
}

/// A rule that has been checked, compiled and given its settings.
pub struct Rule {
    ready: Ready,
    manifest: Manifest,
    hash: String,
    imports: Vec<String>,
    settings: String,
    limits: Limits,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("manifest", &self.manifest).field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl Rule {
    /// Reads, checks and compiles a plugin file, asks who it is and tries its settings.
    ///
    /// # Errors
    /// Where the file is no rule of a version that this host speaks, or the rule refuses its settings or misbehaves.
    pub fn load(path: &Path, options: LoadOptions) -> Result<Self, RuleError> {
        let LoadOptions { limits, cache_dir, settings } = options;
        let wasm = read(path, limits.file_bytes)?;
        let hash = blake3::hash(&wasm).to_hex().to_string();
        let Admitted { component, imports } = admit(path, wasm)?;
        let engine = compile::engine(&limits).map_err(|error| RuleError::Engine { detail: format!("{error:#}") })?;
        let invalid = |error: wasmtime::Error| RuleError::Invalid { path: path.into(), detail: format!("{error:#}") };
        let component = compile::component(&engine, &component, cache_dir.as_deref()).map_err(invalid)?;
        let ready = Ready::new(&engine, &component, &limits).map_err(invalid)?;

        let settings = if settings.is_null() { "{}".to_owned() } else { settings.to_string() };
        let unnamed = |failure| broken(&path.display().to_string(), "(unnamed)", failure);
        let manifest = ready.instantiate().and_then(|mut instance| instance.describe()).map_err(unnamed)?;
        let rule = Self { ready, manifest, hash, imports, settings, limits };
        rule.instantiate()?;
        tracing::debug!(plugin = rule.name(), version = rule.manifest.version, hash = rule.hash, "rule loaded");
        Ok(rule)
    }

    /// Who the rule says it is.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The name in its manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// blake3 of the plugin file, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The interfaces whose functions it may call: none, or `corver:reward/diagnostics`.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// One verdict per sentence, in order. `sentences` holds whole completions. They are judged in a fresh instance, so
    /// nothing is left of earlier batches.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    pub fn judge(&self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, RuleError> {
        if sentences.is_empty() {
            return Ok(Vec::new());
        }
        let mut instance = self.instantiate()?;
        judge(sentences, &self.limits, counter, |batch| instance.score(batch)).map_err(|stop| match stop {
            Stop::Call(failure) => self.broken(failure),
            Stop::Fault(fault) => self.broken((fault, instance.into_reports())),
            Stop::Counter(source) => RuleError::Counter { plugin: self.manifest.name.clone(), source },
            Stop::Answers { expected, got } => RuleError::Answers { expected, got },
        })
    }

    /// A fresh instance with the rule's settings.
    fn instantiate(&self) -> Result<crate::v0_1::Instance, RuleError> {
        let mut instance = self.ready.instantiate().map_err(|failure| self.broken(failure))?;
        instance.configure(&self.settings).map_err(|failure| self.broken(failure))?.map_err(|message| {
            let Manifest { name, version, .. } = &self.manifest;
            RuleError::Settings { plugin: name.clone(), version: version.clone(), message }
        })?;
        Ok(instance)
    }

    fn broken(&self, failure: Failure) -> RuleError {
        broken(&self.manifest.name, &self.manifest.version, failure)
    }
}

impl Rules for Rule {
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
        Ok(Self::judge(self, sentences, counter)?)
    }
}

fn broken(plugin: &str, version: &str, (fault, said): Failure) -> RuleError {
    RuleError::Broken { plugin: plugin.into(), version: version.into(), fault: Box::new(fault), said }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, RuleError> {
    let unreadable = |source| RuleError::Read { path: path.into(), source };
    let got = std::fs::metadata(path).map_err(unreadable)?.len();
    if got > limit {
        return Err(RuleError::FileSize { path: path.into(), limit, got });
    }
    std::fs::read(path).map_err(unreadable)
}
