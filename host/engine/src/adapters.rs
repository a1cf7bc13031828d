//! The adapters of a run on a server. Each version has its own folder and name.
//!
//! No name is used twice: a server that loads other weights under a known name would use the keys
//! and values that it has cached for that name.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use corver_core::BoxError;
use corver_http::RetryPolicy;
use corver_pretrained::{AdapterConfig, PretrainedError};

use crate::error::{EngineError, Result};
use crate::server::{EngineServer, ServerReply};

/// The folder that adapters are written into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterFolder {
    /// Path on this machine.
    pub local: PathBuf,
    /// Path on the server's machine, where a mount may have another one.
    pub on_server: PathBuf,
}

const PREFIX: &str = "policy-";
/// Hexadecimal digits of a name that identify the process.
const PROCESS_DIGITS: usize = 6;
const LOCK: &str = ".lock";

/// The versions in an adapter folder. The server has at most two of them: the current one, and the
/// one that replaces it.
#[derive(Debug)]
pub(crate) struct Adapters {
    folder: AdapterFolder,
    /// Identifies this process in names: a resumed run trains other weights under the same numbers.
    process: String,
    number: u32,
    current: Option<String>,
    _lock: File,
}

impl Adapters {
    /// Locks the folder, and removes versions that a killed process has left.
    pub(crate) fn open(folder: AdapterFolder, server: &EngineServer) -> Result<Self> {
        let local = &folder.local;
        fs::create_dir_all(local).map_err(PretrainedError::io("create", local))?;
        let lock = local.join(LOCK);
        // Not emptied: it may be a link to another file.
        let file = File::options()
            .create(true)
            .append(true)
            .open(&lock)
            .map_err(PretrainedError::io("create", &lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EngineError::InvalidSettings(format!(
                    "another run publishes its adapters in {}; give each run a folder of its own \
                     (engine.adapters)",
                    local.display()
                )));
            }
            Err(TryLockError::Error(source)) => {
                return Err(PretrainedError::io("lock", &lock)(source).into());
            }
        }
        for entry in fs::read_dir(local).map_err(PretrainedError::io("list", local))? {
            let path = entry.map_err(PretrainedError::io("list", local))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_version(name) {
                remove(server, &path, name, &RetryPolicy::new(Duration::ZERO, None))?;
            }
        }
        let nanoseconds =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let identity = format!("{} {nanoseconds} {}", local.display(), std::process::id());
        let hash = blake3::hash(identity.as_bytes());
        let process = hash.to_hex()[..PROCESS_DIGITS].to_owned();
        Ok(Self { folder, process, number: 0, current: None, _lock: file })
    }

    /// Returns the name of the current version.
    pub(crate) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Lets `write` fill a new folder, loads it, and removes the previous version. If this fails,
    /// the previous version stays.
    pub(crate) fn publish(
        &mut self,
        server: &EngineServer,
        write: impl FnOnce(&Path) -> std::result::Result<(), BoxError>,
    ) -> Result<()> {
        let name = format!("{PREFIX}{}-{:06}", self.process, self.number);
        self.number += 1;
        let path = self.folder.local.join(&name);
        write(&path).map_err(|source| EngineError::WriteAdapter { path: path.clone(), source })?;
        if let Err(error) = self.load(server, &name) {
            fs::remove_dir_all(&path).map_err(PretrainedError::io("delete", &path))?;
            return Err(error);
        }
        tracing::debug!(name, "published an adapter");
        if let Some(previous) = self.current.replace(name) {
            self.remove_or_warn(server, &previous);
        }
        Ok(())
    }

    /// Loads the current version again if the server has lost it, as after a restart.
    pub(crate) fn ensure_loaded(&self, server: &EngineServer) -> Result<()> {
        let Some(name) = &self.current else { return Ok(()) };
        if server.has_model(name)? {
            return Ok(());
        }
        tracing::warn!(name, "the engine has lost the adapter; loading it again");
        self.load(server, name)
    }

    fn load(&self, server: &EngineServer, name: &str) -> Result<()> {
        let path = self.folder.on_server.join(name);
        let message = match server.load_adapter(name, &path.to_string_lossy()) {
            Ok(ServerReply::Done(())) => return Ok(()),
            Ok(ServerReply::NotFound(message)) => message,
            // A refusal is harmless if an earlier attempt loaded the adapter and its reply was lost:
            // no other process uses this name.
            Err(EngineError::Refused { message, .. }) => {
                if server.has_model(name)? {
                    return Ok(());
                }
                message
            }
            Err(error) => return Err(error),
        };
        Err(EngineError::Unusable(format!(
            "the engine {} does not load the adapter {}: {message}. It must find this folder \
             (engine.adapters_on_server is the path there), and serve adapters of this \
             rank: VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve … --enable-lora \
             --max-lora-rank N --max-loras 2 (docs/integrations.md)",
            server.url(),
            path.display()
        )))
    }

    /// Removes the current version from the server and from the folder.
    pub(crate) fn close(&mut self, server: &EngineServer) {
        if let Some(name) = self.current.take() {
            self.remove_or_warn(server, &name);
        }
    }

    /// Removes a version. A failure is only logged: an unused adapter is no reason to end a run.
    fn remove_or_warn(&self, server: &EngineServer, name: &str) {
        let path = self.folder.local.join(name);
        let no_retries = RetryPolicy::new(Duration::ZERO, None);
        if let Err(error) = remove(server, &path, name, &no_retries) {
            tracing::warn!(%error, name, "failed to remove an adapter");
        }
    }
}

/// Copies an adapter in PEFT's layout into a new folder, without the other files of a checkpoint.
///
/// # Errors
/// Fails if a file is missing or cannot be written, or the adapter is not plain LoRA, which servers
/// would not see.
pub fn copy_adapter(from: &Path, to: &Path) -> Result<()> {
    AdapterConfig::read(from)?;
    fs::create_dir_all(to).map_err(PretrainedError::io("create", to))?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let file = from.join(name);
        fs::copy(&file, to.join(name)).map_err(PretrainedError::io("copy", &file))?;
    }
    Ok(())
}

/// Returns true if `name` has the form that [`Adapters::publish`] generates, so that no other file
/// of the folder is removed. A folder that is being written is hidden and has a suffix.
fn is_version(name: &str) -> bool {
    let shown = name.strip_prefix('.').unwrap_or(name);
    let stem = shown.strip_suffix(".tmp").or_else(|| shown.strip_suffix(".old")).unwrap_or(shown);
    let Some((process, number)) = stem.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))
    else {
        return false;
    };
    let is_process =
        process.len() == PROCESS_DIGITS && process.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_process && number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Unloads an adapter, if the server has it, and deletes its folder.
fn remove(server: &EngineServer, folder: &Path, name: &str, retries: &RetryPolicy) -> Result<()> {
    match server.unload_adapter(name, retries) {
        Ok(_) => {} // a server that was restarted has no adapters: not found is fine
        Err(error @ (EngineError::Unreachable(_) | EngineError::Refused { .. })) => {
            tracing::warn!(%error, name, "the server may still have an adapter");
        }
        Err(error) => return Err(error),
    }
    Ok(fs::remove_dir_all(folder).map_err(PretrainedError::io("delete", folder))?)
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn only_generated_adapter_names_are_recognised() {
        for generated in [
            "policy-1a2b3c-000017",
            "policy-1a2b3c-000017.tmp",
            ".policy-1a2b3c-000017.tmp",
            "policy-1a2b3c-1000000",
        ] {
            assert!(is_version(generated), "{generated}");
        }
        for other in [
            "policy-final",
            "policy-v1",
            "policy-1a2b3c",
            "policy-1a2b3g-000017",
            "policy-1a2b3c-17",
            "adapters",
        ] {
            assert!(!is_version(other), "{other}");
        }
    }
}
