//! Folders that belong to CorVer: its cache, and where it is installed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says where the `corver-host` is from which child processes are started, where this process is
/// another program. Only the first call counts.
pub fn set_program(path: PathBuf) {
    PROGRAM.get_or_init(|| path);
}

/// The `corver-host` from which child processes are started.
///
/// # Errors
/// Where the system does not say which program this is.
pub fn program() -> Result<PathBuf> {
    match PROGRAM.get() {
        Some(program) => Ok(program.clone()),
        None => std::env::current_exe().context("this program's own path is not known"),
    }
}

/// Where [`program`] is installed, with what comes beside it: `bin/`, `lib/`, `plugins/dist/`,
/// `sdk/`, `wit/`.
///
/// # Errors
/// As [`program`].
pub fn installation() -> Result<PathBuf> {
    let program = program()?;
    Ok(program.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned())
}

/// Where rules, SDKs and contract lie: an installation that has them, or else the checkout that
/// this was built from, which may no longer exist.
#[must_use]
pub fn home() -> PathBuf {
    let installed = installation().ok().filter(|folder| folder.join("wit/corver.wit").is_file());
    let checkout = || {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .expect("this crate lies in host/reward")
    };
    installed.unwrap_or_else(|| checkout().to_owned())
}

/// Where compilers put what they make of rules, so that what all rules depend on is compiled once:
/// in the checkout, or where there is none, in the cache.
///
/// # Errors
/// As [`cache`].
pub fn compiled() -> Result<PathBuf> {
    let home = home();
    let checkout = home.join("plugins/Cargo.toml").is_file();
    if checkout { Ok(home.join("plugins/target")) } else { Ok(cache()?.join("compiled")) }
}

/// Where CorVer keeps what it can make again: `$XDG_CACHE_HOME/corver` or `~/.cache/corver`.
///
/// # Errors
/// Where neither variable is set.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(base
        .context("there is no place for a cache: neither XDG_CACHE_HOME nor HOME is set")?
        .join("corver"))
}
