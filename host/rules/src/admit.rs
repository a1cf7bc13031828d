//! Which files are rules. Everything here reads bytes; nothing runs.

use std::borrow::Cow;
use std::fmt;
use std::panic::catch_unwind;
use std::path::Path;

use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

use crate::RuleError;
use crate::bindings::VERSION;

/// What a plugin rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Sentences, by counts.
    Sentence,
    /// Whole completions.
    Response,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Sentence, Self::Response];

    /// The interface that such a rule exports.
    fn export(self) -> &'static str {
        match self {
            Self::Sentence => "corver:reward/sentence-scoring",
            Self::Response => "corver:reward/response-grading",
        }
    }

    /// Where such a rule is put to use.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Sentence => "sentence rules are given with --plugin",
            Self::Response => "response rules are given with --judge or --format",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sentence => "sentence rule",
            Self::Response => "response rule",
        })
    }
}

/// Has no functions: a component names it because its exports use the types.
const TYPES: &str = "corver:reward/types";
const ALLOWED_IMPORTS: [&str; 2] = ["corver:reward/diagnostics", TYPES];

/// What a file says about itself at its outermost level.
#[derive(Debug, PartialEq)]
struct Outline {
    encoding: Encoding,
    imports: Vec<String>,
    exports: Vec<String>,
    /// Carries the contract that a module was compiled against.
    has_contract: bool,
}

/// Whether `wasm` is a rule of this kind that this host can run; then the interfaces whose
/// functions it may call.
pub(crate) fn check(path: &Path, wasm: &[u8], wanted: Kind) -> Result<Vec<String>, RuleError> {
    let outline = read(path, wasm)?;
    let found = exported(path, &outline.exports)?;
    if found != wanted {
        return Err(invalid(
            path,
            format!("is a {found}, and a {wanted} is needed here: {}", found.hint()),
        ));
    }
    check_imports(path, &outline.imports)?;
    let mut imports: Vec<String> = outline
        .imports
        .iter()
        .filter_map(|import| import.split('#').next())
        .map(str::to_owned)
        .collect();
    imports.retain(|import| interface_and_version(import).0 != TYPES);
    imports.dedup();
    Ok(imports)
}

/// Which kind of rule `wasm` is.
pub(crate) fn kind(path: &Path, wasm: &[u8]) -> Result<Kind, RuleError> {
    exported(path, &read(path, wasm)?.exports)
}

fn invalid(path: &Path, problem: impl fmt::Display) -> RuleError {
    RuleError::InvalidPlugin(format!("{} {problem}", path.display()))
}

/// Returns the error of a file that breaks off or contradicts itself, in the words of its reader or
/// compiler.
pub(crate) fn damaged(path: &Path, detail: impl fmt::Display) -> RuleError {
    invalid(path, format!("is damaged or no valid WebAssembly: {detail:#}; build it again"))
}

fn read(path: &Path, wasm: &[u8]) -> Result<Outline, RuleError> {
    if !wasm.starts_with(b"\0asm") {
        return Err(invalid(
            path,
            "is not a WebAssembly file; give the .wasm that `cargo build --release --target \
             wasm32-unknown-unknown` made",
        ));
    }
    let outline = outline(wasm).map_err(|error| damaged(path, error))?;
    if outline.encoding == Encoding::Module && !outline.has_contract {
        return Err(invalid(
            path,
            "is a WebAssembly module, but no CorVer rule: it does not carry the contract. Write it \
             with `corver-sdk`, which has `corver_sdk::export!` and \
             `corver_sdk::export_response_rule!`",
        ));
    }
    Ok(outline)
}

/// The component in a plugin file: a module is wrapped, a component stays as it is. The error says
/// what is wrong with it.
pub(crate) fn component(wasm: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if Parser::is_component(wasm) {
        return Ok(wasm.into());
    }
    let encode =
        || wit_component::ComponentEncoder::default().validate(true).module(wasm)?.encode();
    // The encoder panics over some damaged contracts, which the module carries.
    match catch_unwind(encode) {
        Ok(encoded) => encoded.map(Cow::from).map_err(|error| format!("{error:#}")),
        Err(_) => Err("the contract that it carries is damaged".to_owned()),
    }
}

fn outline(wasm: &[u8]) -> wasmparser::Result<Outline> {
    let mut outline = Outline {
        encoding: Encoding::Module,
        imports: Vec::new(),
        exports: Vec::new(),
        has_contract: false,
    };
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::Version { encoding, .. } => {
                if depth == 0 {
                    outline.encoding = encoding;
                }
                depth += 1;
            }
            Payload::End(_) => depth -= 1,
            // What nested modules and components import is given to them inside the file.
            _ if depth > 1 => {}
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    outline.imports.push(format!("{}#{}", import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    outline.exports.push(export?.name.to_owned());
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    outline.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    outline.exports.push(export?.name.name.to_owned());
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                outline.has_contract = true;
            }
            _ => {}
        }
    }
    Ok(outline)
}

/// Splits `package:name/interface@version#function`.
fn interface_and_version(name: &str) -> (&str, &str) {
    let interface = name.split('#').next().unwrap_or(name);
    interface.split_once('@').unwrap_or((interface, ""))
}

/// The kind of rule that these exports make, in the version that this host speaks.
fn exported(path: &Path, exports: &[String]) -> Result<Kind, RuleError> {
    let rule = |name: &String| {
        let (interface, version) = interface_and_version(name);
        let kind = Kind::ALL.into_iter().find(|kind| kind.export() == interface)?;
        Some((kind, version.to_owned()))
    };
    match exports.iter().find_map(rule) {
        Some((kind, version)) if version == VERSION => Ok(kind),
        Some((_, found)) => Err(invalid(
            path,
            format!(
                "speaks corver:reward@{found}; this host speaks {VERSION}. Build the plugin again \
                 with the corver-sdk of this host (`corver-host plugin build FOLDER`), or use the \
                 host that it was made for"
            ),
        )),
        None => Err(invalid(
            path,
            format!(
                "exports neither corver:reward/sentence-scoring nor \
                 corver:reward/response-grading, so it is no rule; it exports {exports:?}. A rule \
                 in Rust ends with `corver_sdk::export!(YourRule);` or \
                 `corver_sdk::export_response_rule!(YourRule);`"
            ),
        )),
    }
}

fn check_imports(path: &Path, imports: &[String]) -> Result<(), RuleError> {
    let allowed = |import: &&String| match interface_and_version(import) {
        (interface, VERSION) => ALLOWED_IMPORTS.contains(&interface),
        _ => false,
    };
    let Some(import) = imports.iter().find(|import| !allowed(import)) else { return Ok(()) };
    let hint = if import.starts_with("wasi") {
        "Rules have no clock, files or network: build it with `--target wasm32-unknown-unknown` instead of a WASI target"
    } else {
        "Take the code that needs it out of the rule"
    };
    Err(invalid(
        path,
        format!(
            "imports `{import}`; a rule may import nothing but corver:reward/diagnostics. {hint}"
        ),
    ))
}
