//! What ships inside the binary, and how it becomes plain folders.
//!
//! Everything downstream reads folders, so the demo takes the same road as real models: its files
//! are unpacked once into a cache folder named by their content.

use std::path::{Path, PathBuf};

use corver_core::Question;
use rand::Rng;

use crate::article::Article;
use crate::error::DemoError;
use crate::phrasing::Split;
use crate::world::{World, WorldSize};

/// The seed of the world that the shipped models know.
pub const WORLD_SEED: u64 = 7;

/// Tokens within which the demo's words count as occurring together. Its articles have about forty
/// tokens; with the paper's 1,000 a match would reach into the neighbouring articles, and such a
/// match is not counted.
pub const WINDOW: u64 = 64;

/// The stream that says which facts have golds; articles have the lower ones.
const GOLDS: u64 = u64::MAX - 1;

/// Every shipped file: its place below the unpacked folder and its content.
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

/// Where the unpacked demo lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoPaths {
    /// A Hugging Face folder; its `tokenizer.json` also serves the index of the demo corpus.
    pub policy: PathBuf,
    /// A Hugging Face folder with an extractor.toml.
    pub extractor: PathBuf,
}

/// Unpacks the shipped files below `cache` unless they are there already, whole and unchanged.
///
/// # Errors
/// Where the folder cannot be written.
pub fn materialise(cache: &Path) -> Result<DemoPaths, DemoError> {
    let folder = cache.join(format!("demo-{}", &content_hash()[..16]));
    for (name, content) in FILES {
        let path = folder.join(name);
        // Comparing the few megabytes costs milliseconds, and repairs a folder that was edited.
        if std::fs::read(&path).is_ok_and(|there| there == content) {
            continue;
        }
        std::fs::create_dir_all(corver_files::parent(&path))
            .and_then(|()| corver_files::replace(&path, content))
            .map_err(|source| DemoError::Write { path, source })?;
    }
    Ok(DemoPaths { policy: folder.join("policy"), extractor: folder.join("extractor") })
}

/// Names the content of all shipped files, in hexadecimal.
#[must_use]
pub fn content_hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, content) in FILES {
        // The length marks where one file ends and the next begins.
        hasher
            .update(name.as_bytes())
            .update(&(content.len() as u64).to_le_bytes())
            .update(content);
    }
    hasher.finalize().to_hex().to_string()
}

/// The world that the shipped models know.
#[must_use]
pub fn demo_world() -> World {
    World::generate(WORLD_SEED, &WorldSize::default())
}

/// Questions to train on and questions to measure with: the same facts in different phrasings. For
/// half of the facts, the questions to train on have no gold.
#[must_use]
pub fn demo_questions() -> (Vec<Question>, Vec<Question>) {
    let world = demo_world();
    let mut rng = world.stream(GOLDS);
    let train = world.facts().iter().flat_map(|fact| {
        let has_golds = rng.random_bool(0.5);
        let without = |question| Question { golds: Vec::new(), ..question };
        let asked = world.questions_of(fact, Split::Train);
        asked
            .map(move |question| if has_golds { question } else { without(question) })
            .collect::<Vec<_>>()
    });
    (train.collect(), world.questions(Split::HeldOut))
}

/// The corpus that the demo's counts come from.
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
                .all(|of_fact| of_fact.iter().all(|asked| asked.golds == of_fact[0].golds))
        );
        assert!(eval.iter().all(|question| !question.golds.is_empty()));
    }

    #[test]
    fn unpacking_is_repeatable_and_repairs_what_was_damaged() {
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
