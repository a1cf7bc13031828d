//! Output files of commands.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// Fails if there is a file or folder at the path of an output.
pub fn ensure_new(out: &Path) -> Result<()> {
    ensure!(!out.exists(), "{} is there already; choose another --out", out.display());
    Ok(())
}

/// Creates a folder with its parents, unless it exists. It survives a crash.
pub fn create_folder(path: &Path) -> Result<()> {
    corver_files::create_folder(path)
        .with_context(|| format!("cannot create the folder {}", path.display()))
}

/// Writes a file atomically; an existing one is replaced.
pub fn write(path: &Path, text: &str) -> Result<()> {
    corver_files::replace(path, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Appends a value as a line of JSON.
pub fn push_line(lines: &mut String, value: &impl Serialize) -> Result<()> {
    *lines += &serde_json::to_string(value)?;
    lines.push('\n');
    Ok(())
}
