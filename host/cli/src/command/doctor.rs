//! `corver-host doctor`: what this machine has, what is missing, and the command that mends it.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::{output, parts, rules};

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    /// CorVer works without a GPU, and with nothing else missing.
    needed: bool,
    good: bool,
    found: String,
    mend: Option<&'static str>,
}

impl Finding {
    fn new(what: &'static str, found: Result<String>, mend: &'static str) -> Self {
        match found {
            Ok(found) => Self { what, needed: true, good: true, found, mend: None },
            Err(error) => Self { what, needed: true, good: false, found: format!("{error:#}"), mend: Some(mend) },
        }
    }
}

pub fn run(json: bool) -> Result<()> {
    let findings = [
        Finding::new("libtorch", libtorch(), "make setup && make build"),
        Finding::new("ONNX Runtime", onnx_runtime(), "make setup"),
        Finding::new("rules", rules(), "make plugins"),
        Finding::new("cache", cache(), "set XDG_CACHE_HOME to a folder you may write to"),
        Finding { needed: false, ..Finding::new("GPU", gpu(), "an NVIDIA driver, then `make setup` again") },
    ];
    if json {
        output::json(&findings)?;
    } else {
        show(&findings);
    }
    let missing = findings.iter().filter(|finding| finding.needed && !finding.good).count();
    ensure!(missing == 0, "{missing} needed part(s) missing");
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
        if let Some(mend) = finding.mend {
            output::line(format_args!("          {:<14} → {mend}", ""));
        }
    }
}

#[cfg(feature = "torch")]
fn libtorch() -> Result<String> {
    let device = corver_learn::parse_device("auto")?;
    Ok(format!("loaded; training runs on {device:?}"))
}

#[cfg(not(feature = "torch"))]
fn libtorch() -> Result<String> {
    anyhow::bail!("this corver-host was built without it and cannot train")
}

fn onnx_runtime() -> Result<String> {
    let library = corver_extract::RuntimeLibrary::find(None)?;
    library.load()?;
    Ok(library.path().display().to_string())
}

fn rules() -> Result<String> {
    let folders = rules::plugin_folders();
    let count = |folder: &Path| {
        let entries = std::fs::read_dir(folder).ok()?;
        let wasm = entries.filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|ext| ext == "wasm"))
        });
        Some(wasm.count()).filter(|count| *count > 0)
    };
    let found = folders.iter().find_map(|folder| count(folder).map(|count| format!("{count} in {}", folder.display())));
    found.ok_or_else(|| anyhow::anyhow!("no plugin is built"))
}

fn cache() -> Result<String> {
    let path = parts::cache_dir()?;
    std::fs::create_dir_all(&path)?;
    Ok(path.display().to_string())
}

fn gpu() -> Result<String> {
    let output = Command::new("nvidia-smi").arg("-L").output().map_err(|_| anyhow::anyhow!("no NVIDIA driver"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned).ok_or_else(|| anyhow::anyhow!("the driver sees no GPU"))
}
