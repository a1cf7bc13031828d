//! Answers in f32 against those of `transformers` in f64: `make test-peers`. `nli.py` makes the
//! models.

use std::path::Path;
use std::process::Command;

use corver_inference::nli::NliSettings;

use crate::golden;

#[test]
#[ignore = "needs transformers: `make test-peers`"]
fn entailment_scores_match_transformers() {
    let python = std::env::var_os("CORVER_PEERS").expect("`make test-peers` sets CORVER_PEERS");
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/nli.py");
    let status = Command::new(python).arg(script).arg(folder.path()).status().unwrap();
    assert!(status.success());
    for family in ["hhem", "deberta"] {
        let folder = folder.path().join(family);
        for batch_size in [32, 1] {
            let settings = NliSettings {
                batch_size,
                max_batch_tokens: Some(16_384),
                ..NliSettings::default()
            };
            let largest = golden::check(&folder, settings, 3e-5);
            eprintln!("{family}, batches of {batch_size}: answers differ by at most {largest:.1e}");
        }
    }
}
