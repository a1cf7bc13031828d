//! `corver-host plugin build`: compiles a rule's project to NAME.wasm.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use corver_reward::config::RulesConfig;
use corver_reward::folders;
use corver_reward::parts::Loader;
use corver_rules::Manifest;
use corver_settings::PluginRef;
use serde_json::{Value, json};

use crate::output;

pub fn run(dir: &Path, json: bool) -> Result<()> {
    let scratch = tempfile::tempdir().context("making a folder for what the compiler writes")?;
    let compiled = if dir.join("Cargo.toml").is_file() {
        rust(&dir.join("Cargo.toml"))?
    } else if let Some(source) = ScriptSource::find(dir, &PYTHON) {
        python(dir, &source, &scratch.path().join("rule.wasm"))?
    } else if let Some(source) = ScriptSource::find(dir, &JAVASCRIPT) {
        javascript(dir, &source, scratch.path())?
    } else {
        bail!(
            "{} has no Cargo.toml, and no rule or response in Python or JavaScript (rule.py, \
             response.py, rule.js, response.js): `corver-host plugin new NAME` starts a project",
            dir.display()
        )
    };
    // Loaded before it is copied, so that the folder never has a rule that cannot be loaded.
    let config = RulesConfig::default();
    let rule = Loader::new(&config)?.any(&PluginRef::file(&compiled))?;
    let Manifest { name, version, .. } = rule.manifest();
    let wasm = dir.join(name).with_extension("wasm");
    let built =
        std::fs::read(&compiled).with_context(|| format!("reading {}", compiled.display()))?;
    corver_files::replace(&wasm, &built).with_context(|| format!("writing {}", wasm.display()))?;
    let bytes = built.len();
    if json {
        return output::json(
            &json!({"path": wasm, "name": name, "bytes": bytes, "blake3": rule.hash()}),
        );
    }
    output::line(format_args!("{}: {name} {version}, {bytes} bytes", wasm.display()));
    Ok(())
}

/// A rule's file, its world in the contract, and the SDK module that exports it.
type Kind = (&'static str, &'static str, &'static str);

const PYTHON: [Kind; 2] = [
    ("rule.py", "sentence-rule", "corver_component"),
    ("response.py", "response-rule", "corver_response_component"),
];
const JAVASCRIPT: [Kind; 2] = [
    ("rule.js", "sentence-rule", "component.js"),
    ("response.js", "response-rule", "response-component.js"),
];

/// A rule in a language whose component includes an interpreter.
struct ScriptSource {
    path: PathBuf,
    world: &'static str,
    entry: &'static str,
}

impl ScriptSource {
    /// Returns the first of these files that is in `dir`.
    fn find(dir: &Path, kinds: &[Kind]) -> Option<Self> {
        let source = |&(file, world, entry): &Kind| Self { path: dir.join(file), world, entry };
        kinds.iter().map(source).find(|source| source.path.is_file())
    }
}

/// Returns the checkout that this binary was built from, which has the SDK and the scripts of the
/// WebAssembly toolchain.
pub fn checkout() -> Result<PathBuf> {
    let root = folders::home();
    ensure!(
        root.join("sdk").is_dir(),
        "the checkout that this binary was built from is no longer at {}; run `make build` in a \
         checkout",
        root.display()
    );
    Ok(root)
}

/// Runs cargo for WebAssembly, and returns the module's path. The target folder is shared, so that
/// common dependencies are compiled once.
fn rust(manifest: &Path) -> Result<PathBuf> {
    let program = match checkout() {
        // The script knows what to do if rustup has no WebAssembly target.
        Ok(checkout) => checkout.join("plugins/cargo-wasm.sh"),
        Err(_) => PathBuf::from("cargo"),
    };
    let mut cargo = Command::new(&program);
    cargo.args(["build", "--quiet", "--release", "--message-format=json-render-diagnostics"]);
    if program.as_os_str() == "cargo" {
        cargo.args(["--target", "wasm32-unknown-unknown"]);
    }
    cargo.arg("--manifest-path").arg(manifest);
    cargo.arg("--target-dir").arg(folders::rule_builds()?.join("wasm"));
    if let Some(revision) = revision(corver_files::parent(manifest)) {
        cargo.env("CORVER_REVISION", revision); // the SDK puts it into the file
    }
    let run = cargo
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    if !run.status.success() {
        bail!("{} does not compile; see the compiler's output above", manifest.display());
    }
    let messages = String::from_utf8(run.stdout).context("cargo's messages are not UTF-8")?;
    let mut modules = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let files = message["filenames"].as_array()?;
            files
                .iter()
                .filter_map(Value::as_str)
                .find(|file| file.ends_with(".wasm"))
                .map(PathBuf::from)
        });
    modules.next_back().with_context(|| {
        format!(
            "{} makes no WebAssembly file: it needs `crate-type = [\"cdylib\", \"rlib\"]` under \
             [lib]",
            manifest.display()
        )
    })
}

/// Returns the commit of a project, with `-dirty` if files have changed since; `None` outside of a Git
/// repository.
fn revision(project: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(project);
    git.args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    let run = git.stderr(Stdio::null()).output().ok().filter(|run| run.status.success())?;
    Some(String::from_utf8(run.stdout).ok()?.trim().to_owned())
}

/// Runs componentize-py on the SDK's entry module and the rule. WASI functions that Python's library
/// imports become stubs, so that the component imports nothing.
fn python(dir: &Path, source: &ScriptSource, component: &Path) -> Result<PathBuf> {
    let checkout = checkout()?;
    let installed = checkout.join(".deps/componentize-py/bin/componentize-py");
    let program = if installed.is_file() { installed } else { PathBuf::from("componentize-py") };
    let mut componentize = Command::new(&program);
    componentize.arg("-d").arg(checkout.join("wit")).args([
        "-w",
        source.world,
        "componentize",
        "--stub-wasi",
        source.entry,
    ]);
    componentize
        .arg("-p")
        .arg(dir)
        .arg("-p")
        .arg(checkout.join("sdk/python"))
        .arg("-o")
        .arg(component);
    let run = componentize.stdout(Stdio::null()).status().with_context(|| {
        format!("running {}; `pip install componentize-py` installs it", program.display())
    })?;
    ensure!(
        run.success(),
        "{} does not compile; see componentize-py's output above",
        source.path.display()
    );
    Ok(component.to_owned())
}

/// Runs componentize-js on the SDK's entry module, the rule and the modules in its folder. WASI is
/// disabled in the JavaScript engine.
fn javascript(dir: &Path, source: &ScriptSource, scratch: &Path) -> Result<PathBuf> {
    let checkout = checkout()?;
    // The SDK's modules are copied last, so that no module of the rule replaces one of them.
    for folder in [dir, &checkout.join("sdk/js")] {
        copy_modules(folder, scratch)?;
    }
    let component = scratch.join("rule.wasm");
    let installed = checkout.join(".deps/componentize-js/node_modules/.bin/componentize-js");
    let program = if installed.is_file() { installed } else { PathBuf::from("componentize-js") };
    let mut componentize = Command::new(&program);
    // It resolves imports relative to the current folder only.
    componentize.current_dir(scratch).arg(source.entry);
    componentize
        .arg("--wit")
        .arg(checkout.join("wit"))
        .args(["--world-name", source.world, "--out"])
        .arg(&component);
    componentize.args(["--disable", "stdio", "random", "clocks", "http", "fetch-event"]);
    let run = componentize.stdout(Stdio::null()).status().with_context(|| {
        format!(
            "running {}; `npm install --global @bytecodealliance/componentize-js` installs it",
            program.display()
        )
    })?;
    ensure!(
        run.success(),
        "{} does not compile; see componentize-js's output above",
        source.path.display()
    );
    Ok(component)
}

/// Copies the JavaScript files of a folder, without subfolders.
fn copy_modules(from: &Path, to: &Path) -> Result<()> {
    for entry in from.read_dir().with_context(|| format!("reading {}", from.display()))? {
        let path = entry.with_context(|| format!("reading {}", from.display()))?.path();
        let Some(name) = path
            .file_name()
            .filter(|_| path.extension().is_some_and(|extension| extension == "js"))
        else {
            continue;
        };
        std::fs::copy(&path, to.join(name))
            .with_context(|| format!("reading {}", path.display()))?;
    }
    Ok(())
}
