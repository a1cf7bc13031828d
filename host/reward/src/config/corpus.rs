//! Configuration of the corpus that counts come from.

use std::path::PathBuf;
use std::time::Duration;

use corver_corpus::{CnfOptions, Mode};
use corver_counts::CorpusSource;
use corver_settings::{CountMode, DEMO, PackMisses, RemoteSettings, Settings};

use super::place::parse_source;
use super::{DemoOr, Problems, Resolve};

/// Indexes, and the counting of occurrences in them.
#[derive(Debug, Clone)]
pub struct CorpusConfig {
    /// Indexes whose counts are added; none if a pack alone has the counts.
    pub sources: Vec<DemoOr<CorpusSource>>,
    /// Counts of known queries. `None`: every query is counted in the indexes.
    pub pack: Option<PathBuf>,
    /// Definition of a match.
    pub counting: CnfOptions,
    /// Memory for the positions of frequent words, in MiB.
    pub cache_mib: u64,
    /// Time limit for the queries of one round.
    pub count_time: Duration,
    /// Settings of requests to index servers.
    pub remote: RemoteSettings,
}

impl Resolve for CorpusConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let corpus = &mut settings.corpus;
        problems.make_absolute("corpus.remote.token_file", &mut corpus.remote.token_file);
        problems.make_absolute("corpus.pack", &mut corpus.pack);
        if let Some(pack) = &corpus.pack {
            problems.require_path("corpus.pack", pack);
        }
        let needs_index = corpus.pack.is_none() || corpus.pack_misses == PackMisses::Index;
        if !needs_index {
            // The demo's index is the default of every command.
            corpus.index.retain(|index| index != DEMO);
            if !corpus.index.is_empty() {
                let problem = "set, but with `corpus.pack_misses = \"abstain\"` no index is used";
                problems.add("corpus.index", problem);
                return None;
            }
        }
        let is_named = (!needs_index || !corpus.index.is_empty()).then_some(());
        problems.required("corpus.index", is_named, "--index DIR|NAME|URL#NAME")?;
        let mut sources = Vec::new();
        for text in &mut corpus.index {
            let source = problems.record("corpus.index", parse_source(text));
            let Some(source) = source else { continue };
            *text = source.to_setting(|own| match own {
                CorpusSource::Folder(folder) => folder.display().to_string(),
                CorpusSource::Remote { url, index } => format!("{url}#{index}"),
            });
            sources.push(source);
        }
        (sources.len() == corpus.index.len()).then(|| Self {
            sources,
            pack: corpus.pack.clone(),
            counting: CnfOptions {
                mode: mode(corpus.mode),
                max_clause_freq: corpus.max_clause_freq,
                max_diff_tokens: corpus.max_diff_tokens,
            },
            cache_mib: corpus.cache_mib,
            count_time: Duration::from_millis(corpus.count_timeout_ms),
            remote: corpus.remote.clone(),
        })
    }
}

fn mode(mode: CountMode) -> Mode {
    match mode {
        CountMode::Compatible => Mode::Compatible,
        CountMode::Exact => Mode::Exact,
        CountMode::Span => Mode::Span,
    }
}
