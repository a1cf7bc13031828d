//! Damages the files of a small model and its adapter: they are rejected with an error, or all
//! numbers read are finite.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use corver_learn::{LearnError, LoraSettings, Model, Precision};
use corver_pretrained::{ModelConfig, ModelFamily};
use libfuzzer_sys::fuzz_target;
use tch::Device;

/// A change of a file: kind, file, position, bytes. It writes them, truncates, replaces the file by
/// another (the position is its number), or removes it. Numbers are taken modulo what exists.
type Change<'i> = (u8, u8, u16, &'i [u8]);

struct Folder {
    folder: tempfile::TempDir,
    files: Vec<(String, Vec<u8>)>,
}

static FOLDER: LazyLock<Folder> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let config = ModelConfig {
        family: ModelFamily::Qwen3,
        vocab_size: 5,
        hidden_size: 8,
        intermediate_size: 4,
        num_layers: 1,
        num_heads: 2,
        num_kv_heads: 1,
        head_dim: 4,
        max_positions: 16,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: false,
    };
    let mut model = Model::random(config, 1, Device::Cpu).expect("it is small");
    model.save(folder.path()).expect("the folder is writable");
    model.add_lora(&LoraSettings { r: 2, alpha: 4.0 }, 1).expect("it is small");
    model.save_adapter(folder.path()).expect("the folder is writable");
    let entries = std::fs::read_dir(folder.path())
        .expect("it was made")
        .map(|entry| entry.expect("it is there").path());
    let file = |path: std::path::PathBuf| {
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            std::fs::read(&path).expect("it was written"),
        )
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    Folder { folder, files }
});

fn changed(
    files: &[(String, Vec<u8>)],
    changes: &[Change<'_>],
) -> BTreeMap<String, Option<Vec<u8>>> {
    let whole = |file: u8| &files[usize::from(file) % files.len()];
    let mut changed: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    for &(kind, file, at, new) in changes {
        let (name, bytes) = whole(file);
        let Some(bytes) = changed.entry(name.clone()).or_insert_with(|| Some(bytes.clone())) else {
            continue;
        };
        let position = usize::from(at) % (bytes.len() + 1);
        match kind % 4 {
            0 => bytes.iter_mut().skip(position).zip(new).for_each(|(old, new)| *old = *new),
            1 => bytes.truncate(position),
            2 => bytes.clone_from(&files[usize::from(at) % files.len()].1),
            _ => drop(changed.insert(name.clone(), None)),
        }
    }
    changed
}

fn read(folder: &Path) {
    let named = |error: &LearnError| {
        assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}")
    };
    let mut model = match Model::load(folder, Precision::F32, Device::Cpu) {
        Ok(model) => model,
        Err(error) => return named(&error),
    };
    for (name, tensor) in model.parameters() {
        assert_eq!(tensor.isfinite().all().int64_value(&[]), 1, "{name}");
    }
    if let Err(error) = model.load_adapter(folder) {
        return named(&error);
    }
    for (name, tensor) in model.lora_parameters() {
        assert_eq!(tensor.isfinite().all().int64_value(&[]), 1, "{name}");
    }
}

fuzz_target!(|changes: Vec<Change<'_>>| {
    let Folder { folder, files } = &*FOLDER;
    let changed = changed(files, &changes);
    for (name, bytes) in &changed {
        let path = folder.path().join(name);
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).expect("the folder is writable"),
            None => std::fs::remove_file(path).expect("it is there"),
        }
    }
    read(folder.path());
    for (name, bytes) in files.iter().filter(|(name, _)| changed.contains_key(name)) {
        std::fs::write(folder.path().join(name), bytes).expect("the folder is writable");
    }
});
