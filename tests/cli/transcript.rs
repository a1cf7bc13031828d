//! Commands and what they printed, as snapshots.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::host::Finished;

/// Commands and their output, in order. `insta::assert_snapshot!` compares it with a file in
/// `snapshots/`.
#[derive(Default)]
pub struct Transcript(String);

impl Transcript {
    /// Appends a command that ended well, and what it printed apart from its progress.
    pub fn add(&mut self, finished: &Finished) {
        self.add_command(finished, &PROGRESS.replace_all(&finished.stderr, ""));
    }

    /// Appends a command that failed with exit code 1 and one error, without a stack trace. What it
    /// logged before the error is left out.
    pub fn add_failure(&mut self, finished: &Finished) {
        let errors: Vec<_> = ERROR.find_iter(&finished.stderr).collect();
        assert!(
            finished.code == Some(1) && errors.len() == 1 && !finished.stderr.contains("panicked"),
            "not one clear error:\n{finished}"
        );
        self.add_command(finished, &finished.stderr[errors[0].start()..]);
    }

    /// Appends a command whose command line is wrong.
    pub fn add_usage_error(&mut self, finished: &Finished) {
        assert_eq!(finished.code, Some(2), "{finished}");
        self.add_command(finished, &finished.stderr);
    }

    fn add_command(&mut self, finished: &Finished, stderr: &str) {
        self.0 += &format!("$ corver-host {}\n", normalise(&finished.command));
        if let Some(code) = finished.code.filter(|code| *code != 0) {
            self.0 += &format!("[exit code {code}]\n");
        }
        for text in [normalise(&finished.stdout), normalise(stderr)] {
            if !text.is_empty() {
                self.0 += &format!("{text}\n");
            }
        }
        self.0 += "\n";
    }

    /// Appends a text under a heading.
    pub fn add_text(&mut self, heading: &str, text: &str) {
        self.0 += &format!("## {heading}\n{}\n\n", normalise(text));
    }
}

impl Display for Transcript {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str(self.0.trim_end())
    }
}

static ERROR: LazyLock<Regex> = LazyLock::new(|| Regex::new("(?m)^error").unwrap());

/// Lines whose number or content depends on the machine or the moment.
static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    let begin = [
        r"memory: ",
        r"decoding \S+ rows",
        r"learning from \S+ tokens",
        r"rule .*, into ",
        r"(raw|trained) policy: ",
        r"step +\S+/\S+ ",
        r"warning: this step had the learning rate ",
    ];
    Regex::new(&format!(r"(?m)^({}).*\n?", begin.join("|"))).unwrap()
});

/// Patterns of what differs between runs, machines or builds, and what a snapshot has instead.
static VOLATILE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let repository = host.join("..");
    let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let temporary = std::env::temp_dir();
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let pattern = |path: PathBuf| regex::escape(path.to_str().unwrap());
    let folder = "[A-Za-z0-9]{6}";
    let patterns = [
        (pattern(build.to_owned()), "[BUILD]"),
        (pattern(canonical(build)), "[BUILD]"),
        (pattern(repository.clone()), "[REPOSITORY]"),
        (pattern(host), "[REPOSITORY]/host"),
        (pattern(canonical(&repository)), "[REPOSITORY]"),
        (pattern(temporary.join(".tmp")) + folder, "[FOLDER]"),
        (pattern(canonical(&temporary).join(".tmp")) + folder, "[FOLDER]"),
        (r"\.tmp".to_owned() + folder + r"\b", "[TEMPORARY]"),
        (r"\b127\.0\.0\.1:\d{4,5}\b".to_owned(), "[ADDRESS]"),
        (r"\b([0-9a-f]{64}|[0-9a-f]{16})\b".to_owned(), "[HASH]"),
        (r"\bCorVer \d+\.\d+\.\d+".to_owned(), "CorVer [VERSION]"),
        (r"\d+ bytes, blake3".to_owned(), "[SIZE] bytes, blake3"),
        (r"\d+(\.\d+)? (ns|µs|ms)\b".to_owned(), "[TIME]"),
        (r"within \d+ s".to_owned(), "within [TIME]"),
        (r"attempts: \d+".to_owned(), "attempts: [N]"),
        // The process that ran out of stack, and what the runtime library says of it.
        (r"thread 'main' .*".to_owned(), "[CRASH]"),
        (r"(?m) +$".to_owned(), ""),
    ];
    patterns.map(|(pattern, name)| (Regex::new(&pattern).unwrap(), name)).into()
});

/// Replaces paths, addresses, hashes, times and sizes with names, and removes space at the ends of
/// lines.
pub fn normalise(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, name) in VOLATILE.iter() {
        text = pattern.replace_all(&text, *name).into_owned();
    }
    text.trim_end().to_owned()
}

/// A number and what is before it, so that the numbers of names are left alone.
static FIGURE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)(^|[\s(:,\[/=])[-+−]?\d+(\.\d+)?(e-?\d+)?\b\*?").unwrap());

static DURATION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(#|\[TIME\]) (ns|µs|ms|s)\b|\[TIME\]").unwrap());

static TABLE_LINES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^[─═]+\n").unwrap());

static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(" {2,}").unwrap());

/// Replaces numbers with `#` and makes columns equally wide: what a model samples differs between
/// processors.
pub fn without_figures(text: &str) -> String {
    let text = FIGURE.replace_all(text, "${1}#");
    let text = DURATION.replace_all(&text, "[TIME]");
    let text = TABLE_LINES.replace_all(&text, "");
    SPACES.replace_all(&text, "  ").into_owned()
}
