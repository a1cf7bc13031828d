//! Folders that belong to CorVer: its cache and its checkout.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where CorVer keeps what it can make again: `$XDG_CACHE_HOME/corver` or `~/.cache/corver`.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(base.context("there is no place for a cache: neither XDG_CACHE_HOME nor HOME is set")?.join("corver"))
}

/// The checkout that this binary was built from. It may no longer exist.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in host/cli")
}
