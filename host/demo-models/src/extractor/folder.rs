//! The extractor's folder: a Hugging Face model with an extractor.toml.

use std::path::Path;

use anyhow::{Context, Result};
use corver_learn::Model;
use tokenizers::Tokenizer;

use super::tokenizer::END;

/// Text of a prompt before its sentence.
pub const PROMPT_PREFIX: &str = "The triplets of a sentence:\n";
/// Text of a prompt after its sentence.
pub const PROMPT_SUFFIX: &str = "\n";

/// Writes a trained model and its tokenizer.
///
/// # Errors
/// Fails if the folder cannot be written.
pub fn write(folder: &Path, model: &Model, tokenizer: &Tokenizer) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let json = tokenizer.to_string(false).map_err(anyhow::Error::from_boxed)?;
    for (name, content) in [("tokenizer.json", json), ("extractor.toml", settings())] {
        std::fs::write(folder.join(name), content)
            .with_context(|| format!("failed to write {name}"))?;
    }
    Ok(model.save(folder)?)
}

fn settings() -> String {
    // TOML's basic strings escape as Rust's debug format does for plain ASCII.
    format!(
        "# The demo's extractor. Trained for this prompt, so that it needs no examples.\n\
         prompt_prefix = {PROMPT_PREFIX:?}\n\
         prompt_suffix = {PROMPT_SUFFIX:?}\n\
         stop = [{END:?}]\n\
         max_new_tokens = 256\n\
         batch_size = 32\n"
    )
}

#[cfg(test)]
mod tests {
    use corver_core::Sampling;
    use corver_inference::extract::{Device, ExtractOptions, OnnxExtractor, RuntimeLibrary};
    use corver_learn::sample;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::extractor::examples::tokenizer_text;
    use crate::extractor::tokenizer::train_tokenizer;
    use crate::extractor::train::{SHIPPED, start};

    /// Trains the tokenizer of the shipped settings, which depends on the worlds and their wording.
    fn tokenizer() -> Tokenizer {
        train_tokenizer(&tokenizer_text(&mut ChaCha8Rng::seed_from_u64(SHIPPED.seed))).unwrap()
    }

    #[test]
    fn shipped_extractor_tokenizer_matches_settings() {
        let trained = tokenizer().to_string(false).unwrap();
        let shipped = include_str!("../../../demo/assets/extractor/tokenizer.json");
        assert!(trained == shipped, "the tokenizer has changed: train the extractor again");
        assert_eq!(settings(), include_str!("../../../demo/assets/extractor/extractor.toml"));
    }

    #[test]
    fn written_extractor_folder_replies_like_model() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer();
        let model = start(tokenizer.get_vocab_size(true), 1).unwrap();
        write(folder.path(), &model, &tokenizer).unwrap();
        let sentences = ["Silent Abc was directed by Dora Efg.", "I don't know.", "Zuzu"];
        let mut prompts = Vec::new();
        for sentence in sentences {
            let [prefix, rest] = [PROMPT_PREFIX.to_owned(), format!("{sentence}{PROMPT_SUFFIX}")]
                .map(|text| tokenizer.encode(text, false).unwrap().get_ids().to_vec());
            prompts.push([prefix, rest].concat());
        }
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let stop = tokenizer.token_to_id(END).unwrap();
        let expected: Vec<String> = sample(&model, &slices, &Sampling::greedy(256), &[stop], 1)
            .unwrap()
            .iter()
            .map(|completion| tokenizer.decode(&completion.tokens, true).unwrap())
            .collect();
        assert!(
            expected.iter().all(|reply| reply.len() > 100) && expected[0] != expected[1],
            "{expected:?}"
        );
        let runtime = RuntimeLibrary::find(None).unwrap();
        let extractor =
            OnnxExtractor::open(folder.path(), ExtractOptions::default(), Device::Cpu, &runtime)
                .unwrap();
        let replies = extractor.replies(&sentences).unwrap();
        // A reply ends with the bracket that closes its list, which may be within its last token.
        assert!(
            replies
                .iter()
                .zip(&expected)
                .all(|(reply, expected)| expected.starts_with(&**reply) && reply.len() > 100)
        );
    }
}
