//! The built-in demo's files, written to the cache when they are first needed.

use std::path::PathBuf;

use anyhow::{Context, Result};
use corver_corpus::{BuildOptions, MANIFEST_VERSION, Tokenizer};
use corver_demo::{Article, DemoPaths};

use crate::folders;

/// The policy and the extractor.
pub fn demo() -> Result<DemoPaths> {
    let cache = folders::cache()?;
    corver_demo::materialise(&cache).with_context(|| {
        format!(
            "unpacking the built-in demo into {} (XDG_CACHE_HOME names another place)",
            cache.display()
        )
    })
}

/// The index of the articles.
pub fn demo_index() -> Result<PathBuf> {
    let tokenizer = Tokenizer::from_file(demo()?.policy.join("tokenizer.json"))?;
    let line = |article: &Article| {
        serde_json::json!({"title": article.title, "text": article.text}).to_string()
    };
    let lines: Vec<String> = corver_demo::demo_corpus().iter().map(line).collect();
    let articles = lines.join("\n");
    // Named by its content, so that neither another version's articles nor its files are taken.
    let content = format!("{MANIFEST_VERSION}\n{}\n{articles}", tokenizer.fingerprint());
    let content = blake3::hash(content.as_bytes()).to_hex();
    let path = folders::cache()?.join(format!("demo-index-{}", &content[..16]));
    if path.exists() {
        return Ok(path);
    }
    let folder = tempfile::tempdir().context("a folder for the demo's articles")?;
    let file = folder.path().join("articles.jsonl");
    std::fs::write(&file, articles).with_context(|| format!("writing {}", file.display()))?;
    match corver_corpus::build(&[file], &tokenizer, &path, &BuildOptions::default()) {
        // Another process was faster.
        Err(_) if path.exists() => Ok(path),
        built => built.map(|_| path).context("indexing the demo's articles"),
    }
}
