//! The built-in demo's files, written to the cache on first use.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use corver_backends::passages;
use corver_corpus::{BuildOptions, MANIFEST_VERSION, Tokenizer};
use corver_demo::DemoPaths;

use crate::folders;

/// Unpacks the demo's policy and extractor, and returns their folders.
///
/// # Errors
/// If the cache cannot be written.
pub fn unpack_demo() -> Result<DemoPaths> {
    let cache = folders::cache()?;
    corver_demo::materialise(&cache).with_context(|| {
        format!(
            "unpacking the built-in demo into {} (XDG_CACHE_HOME names another folder)",
            cache.display()
        )
    })
}

/// Builds the index of the demo's articles, and returns its folder.
///
/// # Errors
/// If the cache cannot be written.
pub fn demo_index() -> Result<PathBuf> {
    let tokenizer = Tokenizer::open(unpack_demo()?.policy.join("tokenizer.json"))?;
    let mut lines = Vec::new();
    for article in corver_demo::demo_corpus() {
        let line = serde_json::json!({"title": article.title, "text": article.text});
        lines.push(line.to_string());
    }
    let articles = lines.join("\n");
    // Named by content, so that an index of other articles or of another format is not used. Its
    // passages are next to it.
    let content = format!(
        "{MANIFEST_VERSION}\n{}\n{}\n{articles}",
        passages::VERSION,
        tokenizer.fingerprint()
    );
    let hash = blake3::hash(content.as_bytes()).to_hex();
    let path = folders::cache()?.join(format!("demo-index-{}", &hash[..16]));
    if path.exists() {
        return Ok(path);
    }
    // Another process may be building it: wait.
    let lock_path = path.with_extension("lock");
    let lock = File::create(&lock_path).and_then(|file| file.lock().map(|()| file));
    let _lock = lock.with_context(|| format!("locking {}", lock_path.display()))?;
    if path.exists() {
        return Ok(path);
    }
    let folder = tempfile::tempdir().context("a folder for the demo's articles")?;
    let file = folder.path().join("articles.jsonl");
    std::fs::write(&file, articles).with_context(|| format!("writing {}", file.display()))?;
    // Not resumed: it takes a second, and another version may have begun it.
    let options = BuildOptions { restart: true, ..BuildOptions::default() };
    corver_corpus::build(&[file], &tokenizer, &path, &options)
        .context("indexing the demo's articles")?;
    Ok(path)
}
