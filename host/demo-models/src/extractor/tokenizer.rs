//! The extractor's tokenizer: byte-level BPE in which a word has the same pieces wherever it
//! stands.
//!
//! Copying is the extractor's whole task, and it is easy only if a name is spelt alike in the
//! sentence, after a space, and in the reply, after a quote. So words, single spaces and single
//! punctuation marks are cut apart first, and merges happen within words alone.

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    SplitDelimiterBehavior, Tokenizer, TokenizerBuilder,
};

/// Ends a reply.
pub const END: &str = "<|endoftext|>";
/// What replies are built from, a token each: brackets and quotes between elements.
const FRAME: [&str; 4] = ["[[\"", "\", \"", "\"], [\"", "\"]]"];
/// Small on purpose: common words, and the syllables of names. With more, names fall into pieces
/// that are seldom seen: 1,024 tokens halved the share of new names that were copied right.
const VOCABULARY: usize = 512;

/// Learns the merges from running text.
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
