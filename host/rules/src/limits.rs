//! How much of everything a rule may have.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime::ResourceLimiter;

/// The defaults that the SDK's tests hold a rule to as well.
pub(crate) mod defaults {
    include!("../../../wit/limits.rs");
}

/// Bounds on what a rule may use and answer. The defaults leave a wide margin over the shipped rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest plugin file, bytes.
    pub file_bytes: u64,
    /// Processor seconds for compiling a file, all cores together, for each MiB of it, the last one whole. With
    /// [`crate::Compiler::Child`].
    pub compile_s: u64,
    /// Memory for compiling a file, bytes. With [`crate::Compiler::Child`].
    pub compile_bytes: u64,
    /// Wall-clock milliseconds for one call, whatever the size of its batch; enforced in steps of 10.
    pub call_ms: u64,
    /// All linear memories of one instance together, bytes. A large batch has up to 16 instances at a time, or one for every
    /// core.
    pub memory_bytes: usize,
    /// All tables together, elements.
    pub table_elements: usize,
    /// Native stack of a call, bytes; at most 1 MiB.
    pub stack_bytes: usize,
    /// Everything that one call hands back, as laid out in the host's memory, bytes.
    pub output_bytes: usize,
    /// Any single text, each word of a query and each text of another question, bytes.
    pub text_bytes: usize,
    /// Questions of any kind that a rule may ask about one sentence, all rounds together.
    pub questions_per_sentence: usize,
    /// Questions of any kind that a response rule may ask about one completion, all rounds together.
    pub questions_per_completion: usize,
    /// Words of one query, all clauses together.
    pub words_per_query: usize,
    /// Words of one clause of a query.
    pub words_per_clause: usize,
    /// Queries of one batch, all rounds together.
    pub queries_per_batch: usize,
    /// Pairs of texts for NLI of one batch, all rounds together.
    pub pairs_per_batch: usize,
    /// Prompts for chat of one batch, all rounds together.
    pub prompts_per_batch: usize,
    /// Searches for passages of one batch, all rounds together.
    pub searches_per_batch: usize,
    /// Messages of one prompt.
    pub messages_per_prompt: usize,
    /// Longest reply to a prompt, tokens.
    pub reply_tokens: u32,
    /// Passages of one search.
    pub passages_per_search: u32,
    /// How often an instance may be answered and called again.
    pub rounds: u32,
    /// Messages kept of one call, each cut at `text_bytes`; further ones are dropped.
    pub reports: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            compile_s: 8,
            compile_bytes: 1 << 30,
            call_ms: 10_000,
            memory_bytes: 256 << 20,
            table_elements: 100_000,
            stack_bytes: 512 << 10,
            output_bytes: 128 << 20,
            text_bytes: defaults::TEXT_BYTES,
            questions_per_sentence: defaults::QUESTIONS_PER_SENTENCE,
            questions_per_completion: defaults::QUESTIONS_PER_COMPLETION,
            words_per_query: defaults::WORDS_PER_QUERY,
            words_per_clause: defaults::WORDS_PER_CLAUSE,
            queries_per_batch: 1_000_000,
            pairs_per_batch: 200_000,
            prompts_per_batch: 20_000,
            searches_per_batch: 100_000,
            messages_per_prompt: defaults::MESSAGES_PER_PROMPT,
            reply_tokens: defaults::REPLY_TOKENS,
            passages_per_search: defaults::PASSAGES_PER_SEARCH,
            rounds: defaults::ROUNDS,
            reports: 16,
        }
    }
}

impl Limits {
    /// Processor seconds for compiling a file of so many bytes.
    pub(crate) fn compile_seconds(&self, bytes: usize) -> u64 {
        self.compile_s.saturating_mul((bytes as u64).div_ceil(1 << 20).max(1))
    }
}

/// The step of the clock that stops slow calls.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Core instances, memories and tables of one rule. A Rust rule that became a component has four, one and two; one that
/// brings an interpreter has tens of instances.
pub(crate) const INSTANCES: usize = 64;
pub(crate) const MEMORIES: usize = 2;
pub(crate) const TABLES: usize = 8;

/// So many instances may wait for counts at the same time: one for every core, and enough to look up much at once.
pub(crate) fn max_waiting() -> usize {
    // Asked once: the answer takes a dozen system calls.
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    CORES.max(16)
}

/// Instances at the same time: those of two large batches, and as many as one's of small ones.
pub(crate) fn max_instances() -> u32 {
    3 * max_waiting() as u32
}

/// What wasmtime asks before an instance grows; a refusal ends the call at once.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory_left: usize,
    table_left: usize,
}

/// A growth that was refused.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("growing by {asked} {what} is {over} beyond the limit")]
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) asked: usize,
    over: usize,
}

pub(crate) const MEMORY: &str = "bytes of memory";
pub(crate) const TABLE: &str = "table elements";

impl Allowance {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { memory_left: limits.memory_bytes, table_left: limits.table_elements }
    }
}

fn take(left: &mut usize, what: &'static str, current: usize, desired: usize) -> wasmtime::Result<bool> {
    let asked = desired.saturating_sub(current);
    match left.checked_sub(asked) {
        Some(rest) => *left = rest,
        None => return Err(Refused { what, asked, over: asked - *left }.into()),
    }
    Ok(true)
}

impl ResourceLimiter for Allowance {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        take(&mut self.memory_left, MEMORY, current, desired)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        take(&mut self.table_left, TABLE, current, desired)
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }

    fn tables(&self) -> usize {
        TABLES
    }
}
