//! A plugin from its file to a rule that can be called.
#![allow(unsafe_code, reason = "machine code is loaded, from the compiler or the cache")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use corver_core::{Backends, Completion};
use wasmtime::component::Component;
use wasmtime::{Engine, Inlining};

use crate::admit::{self, Kind};
use crate::bindings::{response_grading, sentence_scoring};
use crate::cache::{self, Cache};
use crate::instance::{Failure, Instance, Interface, Manifest, Ready};
use crate::rounds::{Allowed, Session, Stop, judge};
use crate::{Compiler, Limits, RuleError, engine};

/// How to load a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadOptions {
    /// Bounds on what the rule may use and answer.
    pub limits: Limits,
    /// Who compiles it.
    pub compiler: Compiler,
    /// Where compiled rules are kept between runs; `None` compiles every time. Made where it does
    /// not exist; nobody else may have rights to it.
    pub cache_dir: Option<PathBuf>,
    /// The rule's settings, a JSON object; `null` stands for the defaults.
    pub settings: serde_json::Value,
}

/// Half of what a thread has by default; the host's own calls come on top.
const MAX_STACK: usize = 1 << 20;

/// Where rules run: engines with their clocks and instances, and the limits of every rule in them.
pub struct Sandbox {
    /// For small files and for large ones. Each is made for the first rule that needs it; or why it
    /// could not be.
    inlined: OnceLock<Result<Engine, String>>,
    plain: OnceLock<Result<Engine, String>>,
    limits: Limits,
    compiler: Compiler,
}

impl Sandbox {
    /// An empty one.
    ///
    /// # Errors
    /// Where no thread has the stack that the limits name.
    pub fn new(limits: Limits, compiler: Compiler) -> Result<Self, RuleError> {
        if limits.stack_bytes > MAX_STACK {
            return Err(RuleError::LimitExceeded(format!(
                "limits.stack_bytes is {}; at most {MAX_STACK} are possible",
                limits.stack_bytes
            )));
        }
        Ok(Self { inlined: OnceLock::new(), plain: OnceLock::new(), limits, compiler })
    }

    /// The engine for a plugin of so many bytes.
    fn engine(&self, bytes: usize) -> Result<&Engine, RuleError> {
        let inlining = engine::inlining(bytes);
        let engine = if inlining == Inlining::Yes { &self.inlined } else { &self.plain };
        engine
            .get_or_init(|| {
                engine::engine(&self.limits, inlining).map_err(|error| format!("{error:#}"))
            })
            .as_ref()
            .map_err(|detail| {
                RuleError::Engine(format!("cannot set up the WebAssembly engine: {detail}"))
            })
    }

    /// Reads, checks and compiles a plugin file, asks who it is and tries its settings. `cache_dir`
    /// and `settings` as in
    /// [`LoadOptions`].
    ///
    /// # Errors
    /// Where the file is no sentence rule of a version that this host speaks, or the rule refuses
    /// its settings or misbehaves; where this machine cannot run WebAssembly, or not within the
    /// limits.
    pub fn load(
        &self,
        path: &Path,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<Rule, RuleError> {
        self.open(path, cache_dir, settings)
    }

    /// The same for a response rule.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_response_rule(
        &self,
        path: &Path,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<ResponseRule, RuleError> {
        self.open(path, cache_dir, settings)
    }

    fn open<I: Interface>(
        &self,
        path: &Path,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<Plugin<I>, RuleError> {
        let limits = &self.limits;
        let wasm = read(path, limits.file_bytes)?;
        let hash = blake3::hash(&wasm);
        let imports = admit::check(path, &wasm, I::KIND)?;
        let engine = self.engine(wasm.len())?;
        let compile = || self.compiler.compile(path, &wasm, limits);
        let code = match cache_dir {
            Some(folder) => cached(folder, &cache::key(engine, &hash), compile)?,
            None => compile()?,
        };
        // SAFETY: the bytes are what a compiler of this version and settings made of this plugin:
        // either just now, or earlier and unchanged since (their hash), in a folder that no other
        // user can write to. Who is this user needs no rule.
        let component = unsafe { Component::deserialize(engine, &code) }
            .map_err(|error| admit::damaged(path, error))?;
        let ready =
            Ready::new(engine, &component, limits).map_err(|error| admit::damaged(path, error))?;

        let unnamed = |(fault, reports): Failure| {
            fault.into_error(&path.display().to_string(), "(unnamed)", &reports)
        };
        let mut instance = ready.instantiate().map_err(unnamed)?;
        let manifest = instance.describe().map_err(unnamed)?;
        let settings = if settings.is_null() { "{}".to_owned() } else { settings.to_string() };
        let hash = hash.to_hex().to_string();
        let rule = Plugin { ready, manifest, hash, imports, settings, limits: limits.clone() };
        rule.configure(&mut instance)?;
        tracing::debug!(
            plugin = rule.name(),
            version = rule.manifest.version,
            hash = rule.hash,
            "rule loaded"
        );
        Ok(rule)
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Kind {
    /// Which rule a plugin file is. Nothing of it runs.
    ///
    /// # Errors
    /// Where the file cannot be read, or is none.
    pub fn of(path: &Path, limits: &Limits) -> Result<Self, RuleError> {
        admit::kind(path, &read(path, limits.file_bytes)?)
    }
}

/// A plugin that has been checked, compiled and given its settings: a [`Rule`] or a
/// [`ResponseRule`].
pub struct Plugin<I: Interface> {
    ready: Ready<I>,
    manifest: Manifest,
    hash: String,
    imports: Vec<String>,
    settings: String,
    pub(crate) limits: Limits,
}

/// A reward for sentences.
pub type Rule = Plugin<sentence_scoring::Guest>;

/// A reward for whole completions: a judge, or a format check.
pub type ResponseRule = Plugin<response_grading::Guest>;

impl<I: Interface> std::fmt::Debug for Plugin<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("manifest", &self.manifest)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl<I: Interface> Plugin<I> {
    /// [`Sandbox::load`] in a sandbox of the rule's own.
    ///
    /// # Errors
    /// As there.
    pub fn load(path: &Path, options: LoadOptions) -> Result<Self, RuleError> {
        let LoadOptions { limits, compiler, cache_dir, settings } = options;
        Sandbox::new(limits, compiler)?.open(path, cache_dir.as_deref(), &settings)
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

    /// For each completion, one judgement per subject.
    pub(crate) fn judge(
        &self,
        completions: &[Completion<'_>],
        verifiers: &mut Backends<'_>,
    ) -> Result<Vec<Vec<<Instance<I> as Session>::Judgement>>, RuleError>
    where
        Instance<I>: Session,
    {
        let allowed = Allowed {
            limits: &self.limits,
            requires: &self.manifest.requires,
            credit: self.manifest.credit,
        };
        judge(completions, allowed, verifiers, || self.instantiate()).map_err(|stop| match stop {
            Stop::Start(error) => error,
            Stop::Broken(failure) => self.broken(failure),
            Stop::Unanswered(source) => {
                RuleError::Unanswered { plugin: self.name().to_owned(), source }
            }
        })
    }

    /// A fresh instance with the rule's settings.
    pub(crate) fn instantiate(&self) -> Result<Instance<I>, RuleError> {
        let mut instance = self.ready.instantiate().map_err(|failure| self.broken(failure))?;
        self.configure(&mut instance)?;
        Ok(instance)
    }

    fn configure(&self, instance: &mut Instance<I>) -> Result<(), RuleError> {
        let answer = instance.configure(&self.settings).map_err(|failure| self.broken(failure))?;
        answer.map_err(|message| {
            let Manifest { name, version, .. } = &self.manifest;
            RuleError::InvalidSettings { plugin: name.clone(), version: version.clone(), message }
        })
    }

    pub(crate) fn broken(&self, (fault, reports): Failure) -> RuleError {
        fault.into_error(&self.manifest.name, &self.manifest.version, &reports)
    }
}

/// What `compile` makes, or made earlier. A cache that cannot be used costs time, not the run: it
/// is warned about.
fn cached(
    folder: &Path,
    key: &blake3::Hash,
    compile: impl FnOnce() -> Result<Vec<u8>, RuleError>,
) -> Result<Vec<u8>, RuleError> {
    let cache = match Cache::open(folder) {
        Ok(cache) => cache,
        Err(reason) => {
            tracing::warn!(folder = %folder.display(), %reason, "compiled rules are not cached");
            return compile();
        }
    };
    let file = cache.file(key);
    match cache.read(key) {
        Ok(Some(code)) => return Ok(code),
        Ok(None) => {}
        Err(reason) => {
            tracing::warn!(file = %file.display(), %reason, "compiling again: the cached code is not usable");
        }
    }
    let code = compile()?;
    if let Err(reason) = cache.write(key, &code) {
        tracing::warn!(file = %file.display(), %reason, "the compiled rule could not be cached");
    }
    Ok(code)
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, RuleError> {
    let unreadable = |source| RuleError::Io { path: path.into(), source };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let problem = format!("the plugin {} is no regular file", path.display());
        return Err(RuleError::InvalidPlugin(problem));
    }
    let mut got = metadata.len();
    let mut wasm = Vec::new();
    if got <= limit {
        // A file that is being written to may have grown.
        let file = File::open(path).map_err(unreadable)?;
        got = file.take(limit.saturating_add(1)).read_to_end(&mut wasm).map_err(unreadable)? as u64;
    }
    if got > limit {
        return Err(RuleError::LimitExceeded(format!(
            "the plugin {} has {got} bytes; at most {limit} are allowed (limits.file_bytes)",
            path.display()
        )));
    }
    Ok(wasm)
}
