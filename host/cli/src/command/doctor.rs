//! `corver-host doctor`: checks the installation, with a fix for everything that is missing.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use corver_core::Device;
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
    fn new(what: &'static str, found: Result<String>, fix: &'static str) -> Self {
        match found {
            Ok(found) => Self { what, needed: true, good: true, found, fix: None },
            Err(error) => Self {
                what,
                needed: true,
                good: false,
                found: format!("{error:#}"),
                fix: Some(fix),
            },
        }
    }
}

pub fn run(json: bool) -> Result<()> {
    let checks = [
        // Only training needs libtorch.
        InstallCheck {
            needed: cfg!(feature = "torch"),
            ..InstallCheck::new("libtorch", libtorch(), "make train, in a checkout")
        },
        InstallCheck::new("ONNX Runtime", onnx_runtime(), "make setup"),
        InstallCheck::new("rules", rules(), "make plugins"),
        InstallCheck::new("cache", cache(), "set XDG_CACHE_HOME to a folder that you can write to"),
        InstallCheck {
            needed: false,
            ..InstallCheck::new("cargo", cargo(), "https://rustup.rs, to build rules in Rust")
        },
        InstallCheck {
            needed: false,
            ..InstallCheck::new("GPU", gpu(), "an NVIDIA driver, then `make setup` again")
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

fn libtorch() -> Result<String> {
    Ok(format!("loaded; training runs on {}", policy::find_device(Device::Auto)?))
}

fn onnx_runtime() -> Result<String> {
    let library = parts::runtime_library()?;
    library.load()?;
    Ok(library.path().display().to_string())
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
    let output = Command::new("nvidia-smi")
        .arg("-L")
        .output()
        .map_err(|_| anyhow::anyhow!("no NVIDIA driver"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned).context("the driver sees no GPU")
}
