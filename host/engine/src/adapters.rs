//! A run's adapters on a server. Each version has a folder and a name of its own, and no name is
//! used twice: a server that was given other weights under a known name would go on with the keys
//! and values that it has cached for that name.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use corver_core::BoxError;
use corver_http::Patience;
use corver_pretrained::PretrainedError;

use crate::error::{EngineError, Result};
use crate::server::{Reply, Server};

/// Where adapters are written, and where the server finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterPlace {
    /// As this machine sees it.
    pub here: PathBuf,
    /// As the server sees it: a mount may have another path there.
    pub seen_as: PathBuf,
}

const PREFIX: &str = "policy-";
/// Hexadecimal digits that stand for a process in a name.
const PROCESS_DIGITS: usize = 6;
const LOCK: &str = ".lock";

/// A folder of adapters, of which the server has at most two: the one that is used, and the one
/// that replaces it.
#[derive(Debug)]
pub(crate) struct Adapters {
    place: AdapterPlace,
    /// Of this process: a resumed run trains other weights under the same numbers.
    process: String,
    number: u32,
    current: Option<String>,
    _lock: File,
}

impl Adapters {
    /// Claims the folder, and removes what a process that was killed has left there.
    pub(crate) fn open(place: AdapterPlace, server: &Server) -> Result<Self> {
        let here = &place.here;
        fs::create_dir_all(here).map_err(PretrainedError::io("create", here))?;
        let lock = here.join(LOCK);
        let file = File::create(&lock).map_err(PretrainedError::io("create", &lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EngineError::InvalidSettings(format!(
                    "another run publishes its adapters in {}; give each run a folder of its own \
                     (engine.adapters)",
                    here.display()
                )));
            }
            Err(TryLockError::Error(source)) => {
                return Err(PretrainedError::io("lock", &lock)(source).into());
            }
        }
        for entry in fs::read_dir(here).map_err(PretrainedError::io("list", here))? {
            let entry = entry.map_err(PretrainedError::io("list", here))?;
            if let Some(name) = entry.file_name().to_str().filter(|name| is_version(name)) {
                forget(server, &entry.path(), name, &Patience::new(Duration::ZERO, None))?;
            }
        }
        let nanoseconds =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let hash = blake3::hash(
            format!("{} {nanoseconds} {}", here.display(), std::process::id()).as_bytes(),
        );
        let process = hash.to_hex()[..PROCESS_DIGITS].to_owned();
        Ok(Self { place, process, number: 0, current: None, _lock: file })
    }

    /// The name of the adapter that is used.
    pub(crate) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Has `write` fill a folder, loads it, and forgets the version before it. Where that fails,
    /// the version before it stays.
    pub(crate) fn publish(
        &mut self,
        server: &Server,
        write: impl FnOnce(&Path) -> std::result::Result<(), BoxError>,
    ) -> Result<()> {
        let name = format!("{PREFIX}{}-{:06}", self.process, self.number);
        self.number += 1;
        let path = self.place.here.join(&name);
        write(&path).map_err(|source| EngineError::WriteAdapter { path: path.clone(), source })?;
        if let Err(error) = self.load(server, &name) {
            fs::remove_dir_all(&path).map_err(PretrainedError::io("delete", &path))?;
            return Err(error);
        }
        tracing::debug!(name, "published an adapter");
        if let Some(former) = self.current.replace(name) {
            self.forget_or_tell(server, &former);
        }
        Ok(())
    }

    /// Loads the current version again where the server has lost it: it was started anew.
    pub(crate) fn ensure_loaded(&self, server: &Server) -> Result<()> {
        let Some(name) = &self.current else { return Ok(()) };
        if is_served(server, name)? {
            return Ok(());
        }
        tracing::warn!(name, "the engine has lost the adapter, and loads it again");
        self.load(server, name)
    }

    fn load(&self, server: &Server, name: &str) -> Result<()> {
        let path = self.place.seen_as.join(name);
        let refused = |message| {
            EngineError::Unusable(format!(
                "the engine {} does not load the adapter {}: {message}. It must find this folder \
                 (engine.adapters_as_seen_by_server is the path there), and serve adapters of this \
                 rank: VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve … --enable-lora \
                 --max-lora-rank N --max-loras 2 (docs/engines.md)",
                server.url(),
                path.display()
            ))
        };
        match server.load_adapter(name, &path.to_string_lossy()) {
            Ok(Reply::Done(())) => Ok(()),
            Ok(Reply::NotFound(message)) => Err(refused(message)),
            // An attempt whose answer was lost has loaded it: the name is ours alone.
            Err(EngineError::Refused { message, .. }) => match is_served(server, name)? {
                true => Ok(()),
                false => Err(refused(message)),
            },
            Err(error) => Err(error),
        }
    }

    /// Leaves neither an adapter on the server nor a folder; what fails is told, not mended: the
    /// run is over.
    pub(crate) fn close(&mut self, server: &Server) {
        if let Some(name) = self.current.take() {
            self.forget_or_tell(server, &name);
        }
    }

    /// What remains of an adapter that nothing uses any more is no reason to end a run.
    fn forget_or_tell(&self, server: &Server, name: &str) {
        if let Err(error) =
            forget(server, &self.place.here.join(name), name, &Patience::new(Duration::ZERO, None))
        {
            tracing::warn!(%error, name, "an adapter was not removed");
        }
    }
}

/// Copies an adapter in PEFT's layout, without what else a checkpoint has, into a new folder.
///
/// # Errors
/// Where a file is missing or cannot be written.
pub fn copy_adapter(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(PretrainedError::io("create", to))?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let file = from.join(name);
        fs::copy(&file, to.join(name)).map_err(PretrainedError::io("copy", &file))?;
    }
    Ok(())
}

fn is_served(server: &Server, name: &str) -> Result<bool> {
    Ok(server.models_now()?.iter().any(|model| model.id == name))
}

/// Whether some run here gave this name: nothing else in the folder is touched. A folder that was
/// being written has an ending.
fn is_version(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").or_else(|| name.strip_suffix(".old")).unwrap_or(name);
    let Some((process, number)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))
    else {
        return false;
    };
    let is_process =
        process.len() == PROCESS_DIGITS && process.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_process && number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Unloads an adapter, if the server has it, and deletes its folder. A server that was restarted
/// has forgotten it.
fn forget(server: &Server, folder: &Path, name: &str, patience: &Patience) -> Result<()> {
    match server.unload_adapter(name, patience) {
        Ok(_) => {}
        Err(error @ (EngineError::Away(_) | EngineError::Refused { .. })) => {
            tracing::warn!(%error, name, "the server may still hold an adapter");
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
        for ours in ["policy-1a2b3c-000017", "policy-1a2b3c-000017.tmp", "policy-1a2b3c-1000000"] {
            assert!(is_version(ours), "{ours}");
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
