//! Folders that belong to CorVer: its cache and its installation.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};

static HOST_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the `corver-host` that child processes run, for a process that is another program. Only the
/// first call has an effect.
pub fn set_host_program(path: PathBuf) {
    HOST_PROGRAM.get_or_init(|| path);
}

/// Returns the `corver-host` that child processes run: by default the file of this process, even if
/// a build has replaced or removed it since the process began.
#[must_use]
pub fn host_program() -> PathBuf {
    HOST_PROGRAM.get().cloned().unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Returns the folder that `corver-host` is installed in, with `bin/`, `lib/`, `plugins/dist/`,
/// `sdk/` and `wit/`.
///
/// # Errors
/// If the system does not know the path of this program.
pub fn installation() -> Result<PathBuf> {
    let program = match HOST_PROGRAM.get() {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("this program's own path is not known")?,
    };
    Ok(program.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned())
}

/// Returns the folder of rules, SDKs and contract: an installation that has them, or else the
/// checkout that this program was built from, which may no longer exist.
#[must_use]
pub fn home() -> PathBuf {
    if let Ok(folder) = installation()
        && folder.join("wit/corver.wit").is_file()
    {
        return folder;
    }
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is in host/reward")
        .to_owned()
}

/// Returns the target folder for rules that are built, shared so that their dependencies compile
/// once: in the checkout, or without one, in the cache.
///
/// # Errors
/// As [`cache`].
pub fn rule_builds() -> Result<PathBuf> {
    let home = home();
    let is_checkout = home.join("plugins/Cargo.toml").is_file();
    if is_checkout { Ok(home.join("plugins/target")) } else { Ok(cache()?.join("compiled")) }
}

/// Returns the folder of files that can be made again: `$XDG_CACHE_HOME/corver` or
/// `~/.cache/corver`. A variable without an absolute path counts as not set: the cache has machine
/// code, which must not come from the current folder.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn cache() -> Result<PathBuf> {
    if let Some(cache_home) = absolute_path("XDG_CACHE_HOME") {
        return Ok(cache_home.join("corver"));
    }
    let user_home = absolute_path("HOME").context(
        "there is no folder for a cache: neither XDG_CACHE_HOME nor HOME is an absolute path",
    )?;
    Ok(user_home.join(".cache/corver"))
}

/// Returns the path in an environment variable, if it is absolute.
fn absolute_path(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}
