//! The demo's tokenizer: byte-level BPE trained on the world's text, with a chat template like Qwen's.
//!
//! The policy and the index of the demo corpus use it. The tags of the answer format are single
//! tokens, as `<think>` is in Qwen3. They are not special tokens, so that decoded texts contain them.

use std::path::Path;

use anyhow::{Context, Result};
use corver_demo::sentence::text_for_vocabulary;
use corver_demo::{QuestionSplit, World};
use serde_json::json;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, Tokenizer,
    TokenizerBuilder,
};

/// Token at the end of a document.
pub const END_OF_TEXT: &str = "<|endoftext|>";
const TURN_START: &str = "<|im_start|>";
/// Token at the end of a message, which ends a completion.
pub const TURN_END: &str = "<|im_end|>";
const TAGS: [&str; 4] = ["<think>", "</think>", "<answer>", "</answer>"];

/// Largest vocabulary. Training stops earlier when every word of the world is a token.
const VOCABULARY: usize = 2048;

const CHAT_TEMPLATE: &str = "{%- for message in messages %}\
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
    {%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// Trains the tokenizer of a world, and writes `tokenizer.json`, `tokenizer_config.json` and
/// `generation_config.json` into `folder`. Returns the size of the vocabulary.
///
/// # Errors
/// Fails if training fails or the folder cannot be written.
pub fn train_tokenizer(world: &World, folder: &Path) -> Result<usize> {
    let tokenizer = train_bpe(world).map_err(anyhow::Error::from_boxed)?;
    let turn_end = token_id(&tokenizer, TURN_END)?;
    let end_of_text = token_id(&tokenizer, END_OF_TEXT)?;
    let generation = json!({
        "eos_token_id": [turn_end, end_of_text],
        "pad_token_id": end_of_text,
    });
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": false,
        "chat_template": CHAT_TEMPLATE,
    });
    std::fs::create_dir_all(folder)?;
    for (name, content) in [
        ("tokenizer.json", tokenizer.to_string(true).map_err(anyhow::Error::from_boxed)?),
        ("tokenizer_config.json", format!("{config:#}\n")),
        ("generation_config.json", format!("{generation:#}\n")),
    ] {
        std::fs::write(folder.join(name), content)
            .with_context(|| format!("failed to write {name}"))?;
    }
    Ok(tokenizer.get_vocab_size(true))
}

fn token_id(tokenizer: &Tokenizer, token: &str) -> Result<u32> {
    tokenizer.token_to_id(token).with_context(|| format!("the tokenizer has no token `{token}`"))
}

fn train_bpe(world: &World) -> tokenizers::Result<Tokenizer> {
    let special = [END_OF_TEXT, TURN_START, TURN_END].map(|token| AddedToken::from(token, true));
    let tags = TAGS.map(|token| AddedToken::from(token, false));
    let mut trainer = BpeTrainer::builder()
        .vocab_size(VOCABULARY)
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special.into_iter().chain(tags).collect())
        .build();
    let byte_level = ByteLevel::new(false, true, true);
    let mut tokenizer =
        TokenizerBuilder::<BPE, NormalizerWrapper, _, PostProcessorWrapper, DecoderWrapper>::new()
            .with_model(BPE::default())
            .with_pre_tokenizer(Some(byte_level))
            .with_decoder(Some(byte_level.into()))
            .build()?;
    tokenizer.train(&mut trainer, training_text(world).into_iter())?;
    Ok(tokenizer.into())
}

/// Returns articles, questions and other sentences of the world. The last two teach the words at the
/// start of a text, which have no space before them.
fn training_text(world: &World) -> Vec<String> {
    let articles = world.articles().map(|article| article.text);
    let questions = [QuestionSplit::Train, QuestionSplit::HeldOut]
        .map(|split| world.questions(split))
        .into_iter()
        .flatten();
    articles
        .chain(questions.map(|question| question.question))
        .chain(text_for_vocabulary(world))
        .chain(["user\n", "assistant\n", "system\n"].map(|role| role.repeat(2)))
        .collect()
}

#[cfg(test)]
mod tests {
    use corver_demo::{WorldSize, demo_world, materialise};

    use super::*;

    fn trained() -> (World, Tokenizer) {
        let folder = tempfile::tempdir().unwrap();
        let world = World::generate(3, &WorldSize::default());
        train_tokenizer(&world, folder.path()).unwrap();
        (world, Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap())
    }

    #[test]
    fn tokenizer_encodes_names_briefly_and_round_trips() {
        let (world, tokenizer) = trained();
        for entity in world.entities() {
            for text in [entity.name.clone(), format!("about {}.", entity.name)] {
                let encoding = tokenizer.encode(text.as_str(), false).unwrap();
                assert!(encoding.len() <= 6, "{:?}", encoding.get_tokens());
                assert_eq!(tokenizer.decode(encoding.get_ids(), true).unwrap(), text);
            }
        }
        let foreign = "Dvořák, 1893: naïve ≠ 你好";
        let encoding = tokenizer.encode(foreign, false).unwrap();
        assert_eq!(tokenizer.decode(encoding.get_ids(), true).unwrap(), foreign);
    }

    #[test]
    fn tokenizer_decodes_tags_but_skips_turn_ends() {
        let (_, tokenizer) = trained();
        let text = "<think>a</think><answer>b</answer><|im_end|>";
        let encoding = tokenizer.encode(text, false).unwrap();
        assert_eq!(encoding.len(), 7);
        assert_eq!(tokenizer.decode(encoding.get_ids(), true).unwrap(), text.replace(TURN_END, ""));
    }

    #[test]
    fn training_is_deterministic() {
        let [a, b] = [trained().1, trained().1];
        assert_eq!(a.to_string(false).unwrap(), b.to_string(false).unwrap());
    }

    /// Fails if the world or its wording differs from that of the shipped policy.
    #[test]
    fn shipped_policy_tokenizer_matches_demo_world() {
        let folder = tempfile::tempdir().unwrap();
        train_tokenizer(&demo_world(), folder.path()).unwrap();
        let shipped = materialise(&folder.path().join("cache")).unwrap().policy;
        for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
            let [trained, shipped] = [folder.path(), &shipped]
                .map(|folder| std::fs::read_to_string(folder.join(name)).unwrap());
            assert!(trained == shipped, "{name} has changed: train the policy again");
        }
    }
}
