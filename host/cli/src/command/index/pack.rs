//! `corver-host index pack`: counts the queries of recordings, into a file that is used without the index.

use anyhow::{Context, Result, ensure};
use corver_backends::recording::Recording;
use corver_core::Query;
use corver_counts::pack::Pack;
use corver_reward::config::{self, CorpusConfig};
use corver_reward::parts;
use serde_json::json;

use crate::args::PackArgs;
use crate::files;
use crate::output;
use crate::settings;

pub fn run(args: &PackArgs, json: bool) -> Result<()> {
    let PackArgs { recordings, out, .. } = args;
    files::ensure_new(out)?;
    let settings = settings::load(&args.settings, &[&args.corpus])?;
    let (_, corpus) = config::resolve::<CorpusConfig>(settings)?;
    ensure!(corpus.pack.is_none(), "`corpus.pack` is set; a pack has the counts of an index");
    let mut queries: Vec<Query> = Vec::new();
    for path in recordings {
        queries.extend(Recording::open(path)?.queries().cloned());
    }
    ensure!(!queries.is_empty(), "the recordings have no queries");
    let (sources, mut counter) = parts::open_corpus(&corpus)?;
    let index = corver_counts::fingerprint(&sources)?;
    let bar = output::progress(queries.len() as u64, "counting");
    let mut progress = |done: usize| bar.set_position(done as u64);
    let packed = Pack::encode(counter.as_mut(), &index, queries, &mut progress);
    bar.finish_and_clear();
    let bytes = packed.map_err(anyhow::Error::from_boxed).context("counting the queries")?;
    corver_files::create(out, &bytes).with_context(|| format!("cannot write {}", out.display()))?;
    let pack = Pack::open(out)?;
    let num_queries = pack.header().queries;
    if json {
        return output::json(&json!({"path": out, "queries": num_queries, "bytes": bytes.len()}));
    }
    output::line(format_args!(
        "{}: {num_queries} queries in {} bytes; use it as corpus.pack",
        out.display(),
        bytes.len()
    ));
    Ok(())
}
