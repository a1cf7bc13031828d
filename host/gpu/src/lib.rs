//! The NVIDIA GPU and driver of this machine, found without CUDA: a GPU that CUDA cannot use differs
//! from none.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::Command;

/// An NVIDIA GPU and its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Name of the model.
    pub name: String,
    /// Version of the driver, such as `580.95.05`. `None`: it is unknown.
    pub driver: Option<String>,
}

impl Gpu {
    /// Returns the first number of the driver's version, such as 580. `None`: it is unknown.
    #[must_use]
    pub fn driver_branch(&self) -> Option<u32> {
        self.driver.as_deref()?.split('.').next()?.parse().ok()
    }
}

impl Display for Gpu {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) => write!(f, "{} (driver {driver})", self.name),
            None => write!(f, "{} (driver of unknown version)", self.name),
        }
    }
}

/// Finds the first NVIDIA GPU. `None`: there is none, or `CUDA_VISIBLE_DEVICES` hides all.
#[must_use]
pub fn find() -> Option<Gpu> {
    if std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|list| hides_all(&list)) {
        return None;
    }
    // In a container, one of the two may be absent.
    ask_nvidia_smi().or_else(|| read_system_files(Path::new("/")))
}

/// True if CUDA sees no GPU with this value of `CUDA_VISIBLE_DEVICES`: a list ends at its first
/// number that no GPU has.
fn hides_all(list: &str) -> bool {
    let first = list.split(',').next().unwrap_or_default().trim();
    first.is_empty() || first.starts_with('-') || first == "NoDevFiles"
}

fn ask_nvidia_smi() -> Option<Gpu> {
    let run = |arguments: &[&str]| {
        let output = Command::new("nvidia-smi").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let name = first_name(&run(&["-L"])?)?;
    let driver = run(&["--query-gpu=driver_version", "--format=csv,noheader"])
        .and_then(|text| first_version(&text));
    Some(Gpu { name, driver })
}

/// Returns the name in the first line of `nvidia-smi -L`: `GPU 0: NVIDIA H100 (UUID: …)`.
fn first_name(list: &str) -> Option<String> {
    let (_, gpu) = list.lines().next()?.strip_prefix("GPU ")?.split_once(": ")?;
    let name = gpu.split_once(" (UUID").map_or(gpu, |(name, _)| name);
    Some(name.to_owned())
}

/// Finds the GPU in the files of its driver under `root`.
fn read_system_files(root: &Path) -> Option<Gpu> {
    let devices = fs::read_dir(root.join("dev")).ok()?;
    let has_gpu = devices.flatten().any(|device| {
        let name = device.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    if !has_gpu {
        return None;
    }
    let version = fs::read_to_string(root.join("proc/driver/nvidia/version")).unwrap_or_default();
    Some(Gpu { name: "NVIDIA GPU".to_owned(), driver: first_version(&version) })
}

/// Returns the first word of the form `550.54` or `550.54.15`.
fn first_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|number| number.parse::<u32>().is_ok())
    };
    text.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_hide_all_or_some() {
        for list in ["", "-1", "-1,0", "NoDevFiles"] {
            assert!(hides_all(list), "{list:?}");
        }
        for list in ["0", "1,0", "GPU-8932f937", "0,-1"] {
            assert!(!hides_all(list), "{list:?}");
        }
    }

    #[test]
    fn name_is_read_from_list_of_gpus() {
        let list = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1111)\nGPU 1: NVIDIA A100 (UUID: x)\n";
        assert_eq!(first_name(list).as_deref(), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(first_name("No devices found.\n"), None);
        assert_eq!(first_name(""), None);
    }

    #[test]
    fn gpu_is_found_in_files_of_its_driver() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_system_files(root.path()), None);
        let dev = root.path().join("dev");
        let proc = root.path().join("proc/driver/nvidia");
        fs::create_dir_all(&dev).unwrap();
        fs::create_dir_all(&proc).unwrap();
        // A driver without a GPU has only these.
        fs::write(dev.join("nvidiactl"), "").unwrap();
        fs::write(dev.join("nvidia-uvm"), "").unwrap();
        let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n\
                       GCC version:  gcc version 12.2.0 (Debian)\n";
        fs::write(proc.join("version"), version).unwrap();
        assert_eq!(read_system_files(root.path()), None);
        fs::write(dev.join("nvidia3"), "").unwrap();
        let gpu = read_system_files(root.path()).unwrap();
        assert_eq!(gpu.to_string(), "NVIDIA GPU (driver 550.54.15)");
        assert_eq!(gpu.driver_branch(), Some(550));
        fs::remove_file(proc.join("version")).unwrap();
        assert_eq!(read_system_files(root.path()).unwrap().driver, None);
    }
}
