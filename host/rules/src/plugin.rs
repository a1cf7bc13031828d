//! Loading of plugin files, and the rules that they become.
#![allow(unsafe_code, reason = "machine code is loaded, from the compiler or the cache")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use corver_core::{Backends, Completion};
use wasmtime::component::Component;
use wasmtime::{Engine, Inlining};

use crate::admit::{self, PluginKind, Provenance};
use crate::bindings::{response_grading, sentence_scoring};
use crate::cache::{self, Cache};
use crate::error::Failure;
use crate::instance::{Instance, Interface, LinkedRule, Manifest};
use crate::rounds::{BatchError, Permissions, Session, run_batch};
use crate::{Compiler, Limits, RuleError, engine};

/// Options of [`Plugin::load`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadOptions {
    /// Bounds on the rule's resources and outcomes.
    pub limits: Limits,
    /// The process that compiles the plugin.
    pub compiler: Compiler,
    /// Folder that caches compiled rules; created if absent. No other user may write to it. `None`:
    /// the plugin is compiled every time.
    pub cache_dir: Option<PathBuf>,
    /// The rule's settings, a JSON object; `null` means the defaults.
    pub settings: serde_json::Value,
}

/// File of a plugin, with the hash that it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFile {
    /// Path of the file.
    pub path: PathBuf,
    /// BLAKE3 hash that the file must have, 64 hexadecimal digits. `None`: any file.
    pub blake3: Option<String>,
}

impl PluginFile {
    /// Returns a file that may have any hash.
    #[must_use]
    pub fn unpinned(path: &Path) -> Self {
        Self { path: path.to_owned(), blake3: None }
    }

    /// Reads the file, of at most `max_bytes`, and returns its bytes with their hash.
    fn read(&self, max_bytes: u64) -> Result<(Vec<u8>, blake3::Hash), RuleError> {
        let wasm = read(&self.path, max_bytes)?;
        let hash = blake3::hash(&wasm);
        match &self.blake3 {
            Some(expected) if *expected != *hash.to_hex() => Err(RuleError::OtherFile {
                path: self.path.clone(),
                expected: expected.clone(),
                actual: hash.to_hex().to_string(),
            }),
            _ => Ok((wasm, hash)),
        }
    }
}

/// Largest `stack_bytes`: half of a thread's default stack. The host's own frames need the rest.
const MAX_STACK: usize = 1 << 20;

/// The engines that rules run in, with the limits of every rule.
pub struct Sandbox {
    /// Engine for small files, created for the first one; the error is the reason why it failed.
    inlined: OnceLock<Result<Engine, String>>,
    /// Engine for large files, likewise.
    plain: OnceLock<Result<Engine, String>>,
    limits: Limits,
    compiler: Compiler,
}

impl Sandbox {
    /// Creates a sandbox without rules.
    ///
    /// # Errors
    /// Fails if `limits.stack_bytes` exceeds the stack of a thread.
    pub fn new(limits: Limits, compiler: Compiler) -> Result<Self, RuleError> {
        if limits.stack_bytes > MAX_STACK {
            return Err(RuleError::LimitExceeded(format!(
                "limits.stack_bytes is {}; at most {MAX_STACK} are allowed",
                limits.stack_bytes
            )));
        }
        Ok(Self { inlined: OnceLock::new(), plain: OnceLock::new(), limits, compiler })
    }

    /// Returns the engine for a plugin of this size, bytes.
    fn engine(&self, bytes: usize) -> Result<&Engine, RuleError> {
        let inlining = engine::inlining(bytes);
        let cell = if inlining == Inlining::Yes { &self.inlined } else { &self.plain };
        cell.get_or_init(|| {
            engine::engine(&self.limits, inlining).map_err(|error| format!("{error:#}"))
        })
        .as_ref()
        .map_err(|detail| {
            RuleError::Engine(format!("failed to start the WebAssembly engine: {detail}"))
        })
    }

    /// Reads, checks and compiles the plugin file of a sentence rule, and configures it once.
    /// [`LoadOptions`] describes `cache_dir` and `settings`.
    ///
    /// # Errors
    /// Fails if the file has another hash or is no sentence rule for this host's contract, if the rule refuses its
    /// settings or breaks the contract or a limit, or if this machine cannot run WebAssembly.
    pub fn load(
        &self,
        file: &PluginFile,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<Rule, RuleError> {
        self.open(file, cache_dir, settings)
    }

    /// Loads a response rule, as [`Self::load`] does a sentence rule.
    ///
    /// # Errors
    /// Fails as [`Self::load`] does.
    pub fn load_response_rule(
        &self,
        file: &PluginFile,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<ResponseRule, RuleError> {
        self.open(file, cache_dir, settings)
    }

    fn open<I: Interface>(
        &self,
        file: &PluginFile,
        cache_dir: Option<&Path>,
        settings: &serde_json::Value,
    ) -> Result<Plugin<I>, RuleError> {
        let limits = &self.limits;
        let path = file.path.as_path();
        let (wasm, hash) = file.read(limits.file_bytes)?;
        let (imports, provenance) = admit::check(path, &wasm, I::KIND)?;
        let engine = self.engine(wasm.len())?;
        let compile = || self.compiler.compile(path, &wasm, limits);
        let code = match cache_dir {
            Some(folder) => cached(folder, &cache::key(engine, &hash), compile)?,
            None => compile()?,
        };
        // SAFETY: a compiler of this version and settings made the bytes from this plugin, either
        // now, or earlier and unchanged since (their hash), in a folder that no other user can
        // write to. This user could run any code without a rule.
        let component = unsafe { Component::deserialize(engine, &code) }
            .map_err(|error| admit::damaged(path, error))?;
        let linked = LinkedRule::new(engine, &component, limits)
            .map_err(|error| admit::damaged(path, error))?;

        // The rule has no name until it has described itself.
        let unnamed =
            |failure: Failure| failure.into_error(&path.display().to_string(), "(unnamed)");
        let mut instance = linked.instantiate().map_err(unnamed)?;
        let manifest = instance.describe().map_err(unnamed)?;
        let rule = Plugin {
            linked,
            manifest,
            hash: hash.to_hex().to_string(),
            imports,
            provenance,
            settings: if settings.is_null() { "{}".to_owned() } else { settings.to_string() },
            limits: limits.clone(),
        };
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

impl PluginKind {
    /// Reads the kind of a plugin file, without running any of it.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is no plugin.
    pub fn read(path: &Path, limits: &Limits) -> Result<Self, RuleError> {
        admit::kind(path, &read(path, limits.file_bytes)?)
    }
}

/// A checked and compiled plugin with its settings: a [`Rule`] or a [`ResponseRule`].
pub struct Plugin<I: Interface> {
    linked: LinkedRule<I>,
    manifest: Manifest,
    hash: String,
    imports: Vec<String>,
    provenance: Provenance,
    settings: String,
    pub(crate) limits: Limits,
}

/// A sentence rule from a plugin.
pub type Rule = Plugin<sentence_scoring::Guest>;

/// A response rule from a plugin: an answer judge or a format check.
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
    /// Loads a plugin in its own [`Sandbox`].
    ///
    /// # Errors
    /// Fails as [`Sandbox::new`] and [`Sandbox::load`] do.
    pub fn load(path: &Path, options: LoadOptions) -> Result<Self, RuleError> {
        let LoadOptions { limits, compiler, cache_dir, settings } = options;
        Sandbox::new(limits, compiler)?.open(
            &PluginFile::unpinned(path),
            cache_dir.as_deref(),
            &settings,
        )
    }

    /// Returns the rule's description of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the name in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Returns the BLAKE3 hash of the plugin file, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the interfaces whose functions the rule may call: none, or `corver:reward/diagnostics`.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// Returns the file's statements about its origin.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Returns one verdict or grade per subject of each completion.
    pub(crate) fn run(
        &self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<<Instance<I> as Session>::Decision>>, RuleError>
    where
        Instance<I>: Session,
    {
        let permissions = Permissions {
            limits: &self.limits,
            requires: &self.manifest.requires,
            credit: self.manifest.credit,
        };
        run_batch(completions, permissions, backends, || self.instantiate()).map_err(|error| {
            match error {
                BatchError::Start(error) => error,
                BatchError::Rule(failure) => self.broken(failure),
                BatchError::Backend(source) => {
                    RuleError::Backend { plugin: self.name().to_owned(), source }
                }
            }
        })
    }

    /// Creates an instance with the rule's settings.
    pub(crate) fn instantiate(&self) -> Result<Instance<I>, RuleError> {
        let mut instance = self.linked.instantiate().map_err(|failure| self.broken(failure))?;
        self.configure(&mut instance)?;
        Ok(instance)
    }

    fn configure(&self, instance: &mut Instance<I>) -> Result<(), RuleError> {
        let result = instance.configure(&self.settings).map_err(|failure| self.broken(failure))?;
        result.map_err(|message| {
            let Manifest { name, version, .. } = &self.manifest;
            RuleError::InvalidSettings { plugin: name.clone(), version: version.clone(), message }
        })
    }

    fn broken(&self, failure: Failure) -> RuleError {
        failure.into_error(&self.manifest.name, &self.manifest.version)
    }
}

/// Returns the cached code of `key`, or compiles and caches it. A cache that cannot be used costs
/// time only, so it is a warning.
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
            tracing::warn!(
                file = %file.display(),
                %reason,
                "compiling again: the cached code is not usable"
            );
        }
    }
    let code = compile()?;
    if let Err(reason) = cache.write(key, &code) {
        tracing::warn!(file = %file.display(), %reason, "the compiled rule could not be cached");
    }
    Ok(code)
}

/// Reads a regular file of at most `limit` bytes.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, RuleError> {
    let unreadable = |source| RuleError::Io { path: path.into(), source };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let problem = format!("the plugin {} is no regular file", path.display());
        return Err(RuleError::InvalidPlugin(problem));
    }
    let mut size = metadata.len();
    let mut wasm = Vec::new();
    if size <= limit {
        // The file may have grown since.
        let file = File::open(path).map_err(unreadable)?;
        size =
            file.take(limit.saturating_add(1)).read_to_end(&mut wasm).map_err(unreadable)? as u64;
    }
    if size > limit {
        return Err(RuleError::LimitExceeded(format!(
            "the plugin {} has {size} bytes; at most {limit} are allowed (limits.file_bytes)",
            path.display()
        )));
    }
    Ok(wasm)
}
