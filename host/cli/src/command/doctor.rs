//! `corver-host doctor`: what this machine has, what is missing, and the command that fixes it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use corver_core::Device;
use corver_reward::{folders, parts, plugin};
use serde::Serialize;

use crate::output;
use crate::policy;

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    needed: bool,
    good: bool,
    found: String,
    fix: Option<&'static str>,
}

impl Finding {
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
    let findings = [
        // Only training needs it.
        Finding {
            needed: cfg!(feature = "torch"),
            ..Finding::new("libtorch", libtorch(), "make train, in a checkout")
        },
        Finding::new("ONNX Runtime", onnx_runtime(), "make setup"),
        Finding::new("rules", rules(), "make plugins"),
        Finding::new("cache", cache(), "set XDG_CACHE_HOME to a folder that you can write to"),
        Finding {
            needed: false,
            ..Finding::new("GPU", gpu(), "an NVIDIA driver, then `make setup` again")
        },
    ];
    if json {
        output::json(&findings)?;
    } else {
        show(&findings);
    }
    let missing = findings.iter().filter(|finding| finding.needed && !finding.good);
    let missing: Vec<&str> = missing.map(|finding| finding.what).collect();
    ensure!(missing.is_empty(), "missing: {}", missing.join(", "));
    Ok(())
}

fn show(findings: &[Finding]) {
    for finding in findings {
        let mark = match finding {
            Finding { good: true, .. } => "good    ",
            Finding { needed: true, .. } => "missing ",
            _ => "optional",
        };
        output::line(format_args!("{mark}  {:<14} {}", finding.what, finding.found));
        if let Some(fix) = finding.fix {
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

fn gpu() -> Result<String> {
    let output = Command::new("nvidia-smi")
        .arg("-L")
        .output()
        .map_err(|_| anyhow::anyhow!("no NVIDIA driver"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned).context("the driver sees no GPU")
}
