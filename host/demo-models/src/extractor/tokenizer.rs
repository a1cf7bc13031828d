//! The extractor's tokenizer: byte-level BPE in which a word has the same tokens in every context.
//!
//! The extractor's task is copying, which is easy only if a name has the same tokens in the sentence,
//! after a space, and in the reply, after a quote. So words, single spaces and single punctuation
//! marks are split first, and merges are within words.

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    SplitDelimiterBehavior, Tokenizer, TokenizerBuilder,
};

/// Stop token of a reply.
pub const END: &str = "<|endoftext|>";
/// Single tokens for the brackets and quotes between the elements of a reply.
const FRAME: [&str; 4] = ["[[\"", "\", \"", "\"], [\"", "\"]]"];
/// Vocabulary size: common words, and syllables of names. It is small, because a larger one splits
/// names into rare tokens: with 1,024 tokens, half as many new names were copied correctly.
const VOCABULARY: usize = 512;

/// Trains the tokenizer on running text.
pub fn train_tokenizer(text: &[String]) -> tokenizers::Result<Tokenizer> {
    let mut trainer = BpeTrainer::builder()
        .vocab_size(VOCABULARY)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END, true)])
        .build();
    let words = Split::new(
        SplitPattern::Regex(r"\p{L}+|[^\p{L}]".into()),
        SplitDelimiterBehavior::Isolated,
        false,
    )?;
    let bytes = ByteLevel::new(false, true, false);
    let mut tokenizer =
        TokenizerBuilder::<BPE, NormalizerWrapper, _, PostProcessorWrapper, DecoderWrapper>::new()
            .with_model(BPE::default())
            .with_pre_tokenizer(Some(Sequence::new(vec![
                PreTokenizerWrapper::Split(words),
                PreTokenizerWrapper::ByteLevel(bytes),
            ])))
            .with_decoder(Some(bytes.into()))
            .build()?;
    tokenizer.train(&mut trainer, text.iter())?;
    let json = tokenizer.to_string(false)?;
    let mut trained = Tokenizer::from_bytes(json)?;
    trained.add_tokens(FRAME.map(|token| AddedToken::from(token, false)))?;
    Ok(trained)
}
