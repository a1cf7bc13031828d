//! The files that are embedded in the binary, and their unpacking.
//!
//! All readers of models read folders. The demo is no exception: its files are unpacked once into a
//! cache folder that is named by their content.

use std::path::{Path, PathBuf};

use corver_core::Question;
use rand::Rng;

use crate::article::Article;
use crate::error::DemoError;
use crate::phrasing::QuestionSplit;
use crate::world::{World, WorldSize};

/// Seed of the world that the shipped models know.
pub const WORLD_SEED: u64 = 7;

/// Tokens within which words of the demo's corpus count as occurring together. Its articles have
/// about forty tokens; with the paper's 1,000, a match would extend into the neighbouring articles
/// and not be counted.
pub const WINDOW: u64 = 64;

/// Random stream that selects the facts with golds. Articles use lower streams.
const GOLDS: u64 = u64::MAX - 1;

/// Path in the unpacked folder, and content, of every file.
const FILES: [(&str, &[u8]); 9] = [
    ("policy/config.json", include_bytes!("../assets/policy/config.json")),
    ("policy/generation_config.json", include_bytes!("../assets/policy/generation_config.json")),
    ("policy/model.safetensors", include_bytes!("../assets/policy/model.safetensors")),
    ("policy/tokenizer.json", include_bytes!("../assets/policy/tokenizer.json")),
    ("policy/tokenizer_config.json", include_bytes!("../assets/policy/tokenizer_config.json")),
    ("extractor/config.json", include_bytes!("../assets/extractor/config.json")),
    ("extractor/extractor.toml", include_bytes!("../assets/extractor/extractor.toml")),
    ("extractor/model.safetensors", include_bytes!("../assets/extractor/model.safetensors")),
    ("extractor/tokenizer.json", include_bytes!("../assets/extractor/tokenizer.json")),
];

/// Folders of the unpacked models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoPaths {
    /// Hugging Face folder of the policy. Its `tokenizer.json` is also that of the demo's index.
    pub policy: PathBuf,
    /// Hugging Face folder of the extractor, with an extractor.toml.
    pub extractor: PathBuf,
}

/// Unpacks the embedded files to a folder in `cache`. Files that are there already and unchanged are
/// not written.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn materialise(cache: &Path) -> Result<DemoPaths, DemoError> {
    let folder = cache.join(format!("demo-{}", &content_hash()[..16]));
    for (name, content) in FILES {
        let path = folder.join(name);
        // The comparison of a few megabytes takes milliseconds, and repairs an edited folder.
        if std::fs::read(&path).is_ok_and(|existing| existing == content) {
            continue;
        }
        std::fs::create_dir_all(corver_files::parent(&path))
            .and_then(|()| corver_files::replace(&path, content))
            .map_err(|source| DemoError::Write { path, source })?;
    }
    Ok(DemoPaths { policy: folder.join("policy"), extractor: folder.join("extractor") })
}

/// Returns the hash of all embedded files, in hexadecimal.
#[must_use]
pub fn content_hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, content) in FILES {
        // The length separates the files.
        hasher
            .update(name.as_bytes())
            .update(&(content.len() as u64).to_le_bytes())
            .update(content);
    }
    hasher.finalize().to_hex().to_string()
}

/// Returns the world that the shipped models know.
#[must_use]
pub fn demo_world() -> World {
    World::generate(WORLD_SEED, &WorldSize::default())
}

/// Returns the training and the evaluation questions: the same facts in different phrasings. For half
/// of the facts, the training questions have no gold.
#[must_use]
pub fn demo_questions() -> (Vec<Question>, Vec<Question>) {
    let world = demo_world();
    let mut rng = world.stream(GOLDS);
    let mut train = Vec::new();
    for fact in world.facts() {
        let has_golds = rng.random_bool(0.5);
        for mut question in world.questions_of(fact, QuestionSplit::Train) {
            if !has_golds {
                question.golds.clear();
            }
            train.push(question);
        }
    }
    (train, world.questions(QuestionSplit::HeldOut))
}

/// Returns the demo's corpus.
#[must_use]
pub fn demo_corpus() -> Vec<Article> {
    demo_world().articles().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_assets_stay_small() {
        let total: usize = FILES.iter().map(|(_, content)| content.len()).sum();
        assert!(total <= 16 << 20, "{total} bytes");
    }

    #[test]
    fn half_of_training_facts_have_golds() {
        let (train, eval) = demo_questions();
        let with = train.iter().filter(|question| !question.golds.is_empty()).count();
        assert!(
            (0.45..0.55).contains(&(with as f64 / train.len() as f64)),
            "{with} of {}",
            train.len()
        );
        assert!(
            train
                .chunks(6)
                .all(|of_fact| of_fact.iter().all(|question| question.golds == of_fact[0].golds))
        );
        assert!(eval.iter().all(|question| !question.golds.is_empty()));
    }

    #[test]
    fn unpacking_is_repeatable_and_repairs_damaged_files() {
        let cache = tempfile::tempdir().unwrap();
        let paths = materialise(cache.path()).unwrap();
        let config = paths.policy.join("config.json");
        std::fs::write(&config, "{").unwrap();
        assert_eq!(materialise(cache.path()).unwrap(), paths);
        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
        assert_eq!(config["model_type"], "qwen3");
        assert!(
            std::fs::read_dir(&paths.policy).unwrap().all(|file| !file
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(".tmp"))
        );
    }

    #[test]
    fn demo_tokenizer_encodes_names_compactly() {
        let tokenizer = tokenizers::Tokenizer::from_bytes(FILES[3].1).unwrap();
        let world = demo_world();
        let tokens: usize = world
            .entities()
            .iter()
            .map(|entity| tokenizer.encode(entity.name.as_str(), false).unwrap().len())
            .sum();
        assert!(
            tokens <= 3 * world.entities().len(),
            "{tokens} tokens for {} names",
            world.entities().len()
        );
    }
}
