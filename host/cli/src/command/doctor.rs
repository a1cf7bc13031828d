//! `corver-host doctor`: checks the installation, with a fix for everything that is missing.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use corver_core::Device;
use corver_inference::onnx;
use corver_reward::{folders, parts, plugin};
use serde::Serialize;

use crate::output;
use crate::policy;

#[derive(Serialize)]
struct InstallCheck {
    what: &'static str,
    needed: bool,
    good: bool,
    found: String,
    fix: Option<&'static str>,
}

impl InstallCheck {
    /// `fix` is `None` if the error contains it.
    fn new(what: &'static str, found: Result<String>, fix: Option<&'static str>) -> Self {
        match found {
            Ok(found) => Self { what, needed: true, good: true, found, fix: None },
            Err(error) => {
                Self { what, needed: true, good: false, found: format!("{error:#}"), fix }
            }
        }
    }
}

pub fn run(json: bool) -> Result<()> {
    let checks = [
        libtorch(),
        InstallCheck::new("ONNX Runtime", onnx_runtime(), None),
        InstallCheck::new("rules", rules(), Some("make plugins")),
        InstallCheck::new(
            "cache",
            cache(),
            Some("set XDG_CACHE_HOME to a folder that you can write to"),
        ),
        InstallCheck {
            needed: false,
            ..InstallCheck::new("cargo", cargo(), Some("https://rustup.rs, to build rules in Rust"))
        },
        InstallCheck {
            needed: false,
            ..InstallCheck::new(
                "GPU",
                gpu(),
                Some("install an NVIDIA driver, then run `make setup` again"),
            )
        },
    ];
    if json {
        output::json(&checks)?;
    } else {
        show(&checks);
    }
    let missing = checks.iter().filter(|check| check.needed && !check.good);
    let missing: Vec<&str> = missing.map(|check| check.what).collect();
    ensure!(missing.is_empty(), "missing: {}", missing.join(", "));
    Ok(())
}

fn show(checks: &[InstallCheck]) {
    for check in checks {
        let mark = match check {
            InstallCheck { good: true, .. } => "good    ",
            InstallCheck { needed: true, .. } => "missing ",
            _ => "optional",
        };
        output::line(format_args!("{mark}  {:<14} {}", check.what, check.found));
        if let Some(fix) = check.fix {
            output::line(format_args!("          {:<14} → {fix}", ""));
        }
    }
}

fn libtorch() -> InstallCheck {
    let found = policy::find_device(Device::Auto)
        .map(|device| format!("loaded; training runs on {device}"));
    if cfg!(feature = "torch") {
        InstallCheck::new("libtorch", found, None)
    } else {
        // Only training needs it.
        let fix = Some("make train, in a checkout");
        InstallCheck { needed: false, ..InstallCheck::new("libtorch", found, fix) }
    }
}

fn onnx_runtime() -> Result<String> {
    let library = parts::runtime_library()?;
    let gpu = onnx::gpu(Device::Auto, &library)?;
    let device = gpu.map_or(Device::Cpu, Device::Cuda);
    Ok(format!("{}; extraction runs on {device}", library.path().display()))
}

fn rules() -> Result<String> {
    let mut folders =
        plugin::search_path().into_iter().map(|folder| (plugin::wasm_files(&folder).len(), folder));
    let (count, folder) = folders.find(|(count, _)| *count > 0).context("no plugin is built")?;
    Ok(format!("{count} in {}", folder.display()))
}

fn cache() -> Result<String> {
    let path = folders::cache()?;
    std::fs::create_dir_all(&path)?;
    Ok(path.display().to_string())
}

fn cargo() -> Result<String> {
    let output = Command::new("cargo").arg("--version").output().context("not on the PATH")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn gpu() -> Result<String> {
    let gpu = corver_gpu::find().context("no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it")?;
    Ok(gpu.to_string())
}
