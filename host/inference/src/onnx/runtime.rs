//! ONNX Runtime's shared library: finding it, and loading it once per process.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider as _};
use ort::logging::LogLevel;

use crate::onnx::{OnnxError, Result};

/// Path of the library that `make setup` installs, from the root of the workspace.
const IN_WORKSPACE: &str = ".deps/onnxruntime/libonnxruntime.so";

/// NVIDIA's libraries that ONNX Runtime's build for CUDA 13 needs, in the order of loading, within
/// the folder that the wheels of NVIDIA share.
const CUDA_LIBRARIES: [&str; 6] = [
    "cu13/lib/libcudart.so.13",
    "cu13/lib/libcublasLt.so.13",
    "cu13/lib/libcublas.so.13",
    "cu13/lib/libcurand.so.10",
    "cu13/lib/libcufft.so.12",
    "cudnn/lib/libcudnn.so.9",
];
/// Number of folders above the library in which `nvidia/` is searched.
const MAX_ANCESTORS: usize = 3;

/// The shared library of ONNX Runtime, 1.17 or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeLibrary {
    path: PathBuf,
}

impl RuntimeLibrary {
    /// Finds the library: `explicit`; else `ORT_DYLIB_PATH`; else the one that `make setup`
    /// installed, in a workspace that contains the executable, in the workspace of this crate, or
    /// in the current folder. If a path is named, no other one is tried.
    ///
    /// # Errors
    /// Fails if there is no library. The message lists all paths.
    pub fn find(explicit: Option<&Path>) -> Result<Self> {
        let variable = std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty());
        let named = explicit.map(Path::to_owned).or_else(|| variable.map(PathBuf::from));
        let candidates = match named {
            Some(path) => vec![path],
            None => Self::installed(),
        };
        if let Some(found) = candidates.iter().find(|path| path.is_file())
            && let Ok(path) = found.canonicalize()
        {
            return Ok(Self { path });
        }
        let searched: Vec<String> =
            candidates.iter().map(|path| path.display().to_string()).collect();
        Err(OnnxError::Runtime(format!(
            "cannot find ONNX Runtime (libonnxruntime.so); searched {}. Run `make setup`, or set \
             ORT_DYLIB_PATH to the library",
            searched.join(", ")
        )))
    }

    fn installed() -> Vec<PathBuf> {
        let executable = std::env::current_exe().unwrap_or_default();
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut folders: Vec<PathBuf> =
            executable.ancestors().skip(1).map(Path::to_owned).collect();
        folders.push(workspace);
        // Last, so that a library in the current folder is not loaded by accident.
        folders.extend(std::env::current_dir());
        let mut candidates: Vec<PathBuf> = Vec::with_capacity(folders.len());
        for folder in folders {
            let candidate = folder.join(IN_WORKSPACE);
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    /// Returns the absolute path of the library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the library was built for NVIDIA GPUs. The driver or libraries that it needs may
    /// still be missing.
    pub(crate) fn has_cuda(&self) -> Result<bool> {
        self.environment()?;
        ep::CUDA::is_available().map_err(|error| self.unusable(error))
    }

    /// Loads NVIDIA's libraries from the folder `nvidia/` of this installation, so that ONNX Runtime
    /// finds them. Without libtorch nothing else does. If one cannot be loaded, ONNX Runtime reports
    /// it.
    pub(crate) fn preload_cuda(&self) {
        for library in self.cuda_libraries() {
            if let Err(error) = ort::util::preload_dylib(&library) {
                tracing::debug!(library = %library.display(), %error, "not preloaded");
            }
        }
    }

    /// Returns the paths of NVIDIA's libraries: next to the folder of ONNX Runtime after `make
    /// setup`, and two folders higher after `pip install onnxruntime-gpu`.
    fn cuda_libraries(&self) -> Vec<PathBuf> {
        let mut libraries = Vec::new();
        for folder in self.path.ancestors().skip(1).take(MAX_ANCESTORS) {
            for library in CUDA_LIBRARIES {
                let path = folder.join("nvidia").join(library);
                if path.is_file() {
                    libraries.push(path);
                }
            }
        }
        libraries
    }

    /// Returns the error of a library that exists but cannot be used, with the loader's reason.
    pub(crate) fn unusable(&self, error: impl Display) -> OnnxError {
        OnnxError::Runtime(format!(
            "cannot use ONNX Runtime at {}: {error}. Run `make setup` for a version that works",
            self.path.display()
        ))
    }

    /// Loads the library, or returns the environment that exists already. ONNX Runtime allows one
    /// per process, so it lives until the process ends.
    pub(crate) fn environment(&self) -> Result<Environment> {
        static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);
        // A poisoned lock is harmless: the value under it is only ever replaced as one.
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((path, environment)) = &*loaded {
            return if *path == self.path {
                Ok(environment.clone())
            } else {
                Err(OnnxError::Runtime(format!(
                    "ONNX Runtime is already loaded from {}; {} cannot be loaded in addition",
                    path.display(),
                    self.path.display()
                )))
            };
        }
        let environment = ort::init_from(&self.path)
            .map_err(|error| self.unusable(error))?
            .with_telemetry(false)
            .build()
            .map_err(|error| self.unusable(error))?;
        environment.set_log_level(LogLevel::Warning);
        tracing::debug!(path = %self.path.display(), "loaded ONNX Runtime");
        *loaded = Some((self.path.clone(), environment.clone()));
        Ok(environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_names_path_and_remedy() {
        let error = RuntimeLibrary::find(Some(Path::new("/nowhere/libonnxruntime.so")))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/nowhere/libonnxruntime.so") && error.contains("make setup"),
            "{error}"
        );
    }

    #[test]
    fn cuda_libraries_are_found_after_setup_and_pip() {
        for library in ["onnxruntime/libonnxruntime.so", "onnxruntime/capi/libonnxruntime.so.1.31"]
        {
            let folder = tempfile::tempdir().unwrap();
            let cudart = folder.path().join("nvidia/cu13/lib/libcudart.so.13");
            std::fs::create_dir_all(cudart.parent().unwrap()).unwrap();
            std::fs::write(&cudart, "").unwrap();
            let runtime = RuntimeLibrary { path: folder.path().join(library) };
            assert_eq!(runtime.cuda_libraries(), [cudart]);
        }
    }

    #[test]
    fn library_search_covers_workspace() {
        let candidates = RuntimeLibrary::installed();
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(IN_WORKSPACE);
        assert!(candidates.contains(&built), "{candidates:?}");
        assert!(
            candidates.contains(&std::env::current_dir().unwrap().join(IN_WORKSPACE)),
            "{candidates:?}"
        );
    }

    #[test]
    fn invalid_library_file_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let library = RuntimeLibrary::find(Some(file.path())).unwrap();
        // Another test of this process may have loaded the real one already.
        let error = library.environment().unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("cannot use ONNX Runtime at ")
                || message.starts_with("ONNX Runtime is already loaded from "),
            "{message}"
        );
    }
}
