//! Checks of plugin files. Everything here reads bytes; no code of the plugin runs.

use std::borrow::Cow;
use std::fmt;
use std::panic::catch_unwind;
use std::path::Path;

use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

use crate::RuleError;
use crate::bindings::VERSION;

/// The kind of rule in a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginKind {
    /// A rule that rewards single sentences.
    Sentence,
    /// A rule that rewards completions.
    Response,
}

impl PluginKind {
    const ALL: [Self; 2] = [Self::Sentence, Self::Response];

    /// Returns the interface that such a rule exports.
    fn export(self) -> &'static str {
        match self {
            Self::Sentence => "corver:reward/sentence-scoring",
            Self::Response => "corver:reward/response-grading",
        }
    }

    /// Returns the advice that names the option for such a rule.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Sentence => "sentence rules are given with --plugin",
            Self::Response => "response rules are given with --judge or --format",
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sentence => "sentence rule",
            Self::Response => "response rule",
        })
    }
}

/// An interface without functions. A component imports it if its exports use the types.
const TYPES: &str = "corver:reward/types";
const ALLOWED_IMPORTS: [&str; 2] = ["corver:reward/diagnostics", TYPES];

/// Characters of a statement in a message.
const MAX_CHARS: usize = 200;

/// Statements of a file about its origin, in the custom sections that `wasm-tools metadata` and the
/// SDK write. They are the author's claims; only the hash of the file is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// Names of the authors. `None`: not stated.
    pub authors: Option<String>,
    /// Licence, an SPDX expression. `None`: not stated.
    pub licenses: Option<String>,
    /// Revision of the source, such as a commit. `None`: not stated.
    pub revision: Option<String>,
}

impl Provenance {
    /// Reads a custom section, if it is one of the statements, and keeps its
    /// first 200 characters.
    fn read(&mut self, section: &str, content: &[u8]) {
        let statement = match section {
            "authors" => &mut self.authors,
            "licenses" => &mut self.licenses,
            "revision" => &mut self.revision,
            _ => return,
        };
        let text = String::from_utf8_lossy(content);
        let shown: String = text.trim().chars().take(MAX_CHARS).collect();
        *statement = (!shown.is_empty()).then_some(shown);
    }
}

/// Imports, exports and origin of a file, without those of nested modules and components.
#[derive(Debug, PartialEq)]
struct Outline {
    encoding: Encoding,
    imports: Vec<String>,
    exports: Vec<String>,
    /// True if a module has the contract's metadata, from which it can become a component.
    has_contract: bool,
    provenance: Provenance,
}

/// Returns the interfaces whose functions the rule may call, and its origin. Fails unless `wasm` is
/// a rule of this kind that this host can run.
pub(crate) fn check(
    path: &Path,
    wasm: &[u8],
    expected: PluginKind,
) -> Result<(Vec<String>, Provenance), RuleError> {
    let outline = read(path, wasm)?;
    let found = exported(path, &outline.exports)?;
    if found != expected {
        return Err(invalid(
            path,
            format!("is a {found}, and a {expected} is needed here: {}", found.hint()),
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
    Ok((imports, outline.provenance))
}

/// Returns the kind of rule in `wasm`.
pub(crate) fn kind(path: &Path, wasm: &[u8]) -> Result<PluginKind, RuleError> {
    exported(path, &read(path, wasm)?.exports)
}

fn invalid(path: &Path, problem: impl fmt::Display) -> RuleError {
    RuleError::InvalidPlugin(format!("{} {problem}", path.display()))
}

/// Returns the error of a truncated or invalid file. `detail` is the message of the parser or the
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

/// Returns the component in a plugin file. A module is converted, a component is not changed. The
/// error describes the problem with the file.
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
        provenance: Provenance::default(),
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
            // Imports of nested modules and components are resolved inside the file.
            _ if depth > 1 => {}
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let wasmparser::Import { module, name, .. } = import?;
                    outline.imports.push(format!("{module}#{name}"));
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
            Payload::CustomSection(section) => {
                outline.provenance.read(section.name(), section.data());
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

/// Returns true if a host of one contract version runs plugins of another: the minor version is the
/// same, and the patch version is not newer.
fn is_supported(plugin: &str, host: &str) -> bool {
    let (Some(plugin), Some(host)) = (parse_version(plugin), parse_version(host)) else {
        return false;
    };
    plugin[..2] == host[..2] && plugin[2] <= host[2]
}

/// Parses `major.minor.patch`.
fn parse_version(version: &str) -> Option<[u32; 3]> {
    let parts = version.split('.').map(|part| part.parse().ok());
    parts.collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// Returns the kind of rule with these exports. Fails if it is none, or has another version of the
/// contract.
fn exported(path: &Path, exports: &[String]) -> Result<PluginKind, RuleError> {
    for export in exports {
        let (interface, version) = interface_and_version(export);
        let Some(kind) = PluginKind::ALL.into_iter().find(|kind| kind.export() == interface) else {
            continue;
        };
        if is_supported(version, VERSION) {
            return Ok(kind);
        }
        return Err(invalid(
            path,
            format!(
                "implements corver:reward@{version}; this host requires {VERSION}. Build the \
                 plugin again with the corver-sdk of this host (`corver-host plugin build \
                 FOLDER`), or use the host that it was made for"
            ),
        ));
    }
    Err(invalid(
        path,
        format!(
            "exports neither corver:reward/sentence-scoring nor corver:reward/response-grading, \
             so it is no rule; it exports {exports:?}. A rule in Rust ends with \
             `corver_sdk::export!(YourRule);` or `corver_sdk::export_response_rule!(YourRule);`"
        ),
    ))
}

fn check_imports(path: &Path, imports: &[String]) -> Result<(), RuleError> {
    for import in imports {
        let (interface, version) = interface_and_version(import);
        if is_supported(version, VERSION) && ALLOWED_IMPORTS.contains(&interface) {
            continue;
        }
        let hint = if import.starts_with("wasi") {
            "Rules have no clock, files or network: build it with `--target \
             wasm32-unknown-unknown` instead of a WASI target"
        } else {
            "Remove the code that needs it"
        };
        return Err(invalid(
            path,
            format!(
                "imports `{import}`; a rule may import nothing but corver:reward/diagnostics. \
                 {hint}"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_runs_older_patch_versions_of_its_contract() {
        for plugin in ["0.1.0", "0.1.3"] {
            assert!(is_supported(plugin, "0.1.3"), "{plugin}");
        }
        for plugin in ["0.1.4", "0.0.3", "0.2.0", "1.1.3", "", "0.1", "0.1.0.0", "0.1.x"] {
            assert!(!is_supported(plugin, "0.1.3"), "{plugin}");
        }
    }

    /// A custom section of a module: its number, the lengths, its name, its content.
    fn section(name: &str, content: &[u8]) -> Vec<u8> {
        let mut section = vec![0, (1 + name.len() + content.len()) as u8, name.len() as u8];
        section.extend(name.as_bytes());
        section.extend(content);
        section
    }

    #[test]
    fn file_states_its_origin() {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        for (name, content) in [
            ("authors", &b" Ada <ada@example.org> "[..]),
            ("licenses", b""),
            ("revision", b"4f\xff2a"),
            ("description", b"ignored"),
        ] {
            module.extend(section(name, content));
        }
        let expected = Provenance {
            authors: Some("Ada <ada@example.org>".to_owned()),
            licenses: None,
            revision: Some("4f\u{fffd}2a".to_owned()),
        };
        assert_eq!(outline(&module).unwrap().provenance, expected);
    }
}
