//! The built-in demo's files, written to the cache when they are first needed.

use std::path::PathBuf;

use anyhow::{Context, Result};
use corver_corpus::{BuildOptions, Tokenizer};
use corver_demo::{DemoPaths, Truth};
use corver_study::eval;
use corver_study::run::text_fingerprint;

use crate::folders;

/// Decides what is said of the demo's world.
#[derive(Debug)]
pub struct DemoTruth(Truth);

impl Default for DemoTruth {
    fn default() -> Self {
        Self(Truth::of(&corver_demo::demo_world()))
    }
}

impl eval::Truth for DemoTruth {
    fn is_true(&self, sentence: &str) -> Option<bool> {
        self.0.is_true(sentence)
    }
}

/// The policy and the extractor.
pub fn demo() -> Result<DemoPaths> {
    let cache = folders::cache()?;
    corver_demo::materialise(&cache).with_context(|| {
        format!("unpacking the built-in demo into {} (XDG_CACHE_HOME names another place)", cache.display())
    })
}

/// The index of the articles.
pub fn demo_index() -> Result<PathBuf> {
    let tokenizer = Tokenizer::from_file(demo()?.policy.join("tokenizer.json"))?;
    let articles = corver_demo::demo_corpus();
    let texts: Vec<&str> = articles.iter().map(|article| article.text.as_str()).collect();
    // Named by its content, so that another version's articles are never counted.
    let content = text_fingerprint(&format!("{}\n{}", tokenizer.fingerprint(), texts.join("\n")));
    let path = folders::cache()?.join(format!("demo-index-{}", &content[..16]));
    if path.exists() {
        return Ok(path);
    }
    match corver_corpus::build_from_documents(texts, &tokenizer, &path, &BuildOptions::default()) {
        // Another process was faster.
        Err(_) if path.exists() => Ok(path),
        built => built.map(|_| path).context("indexing the demo's articles"),
    }
}
