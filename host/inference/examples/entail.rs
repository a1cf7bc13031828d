//! Answers pairs and says how long it took, for benches/nli.py: `entail FOLDER < pairs.json`.
#![allow(clippy::print_stdout)] // what the program is for

use std::path::Path;
use std::time::Instant;

use corver_core::NliPair;
use corver_inference::nli::{Nli, NliSettings};
use corver_inference::onnx::{Device, RuntimeLibrary};
use cpu_time::ProcessTime;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: entail FOLDER < pairs.json")?;
    let pairs: Vec<NliPair> = serde_json::from_reader(std::io::stdin())?;
    let settings = NliSettings { device: Device::Cpu, ..NliSettings::default() };
    let mut model = Nli::open(Path::new(&folder), &settings, &RuntimeLibrary::find(None)?)?;
    // The first run makes room in memory.
    model.answers(&pairs[..1])?;
    let (start, busy) = (Instant::now(), ProcessTime::now());
    let answers = model.answers(&pairs)?;
    let (seconds, busy) = (start.elapsed().as_secs_f64(), busy.elapsed().as_secs_f64());
    println!(
        "{}",
        serde_json::json!({"seconds": seconds, "processor_seconds": busy, "answers": answers})
    );
    Ok(())
}
