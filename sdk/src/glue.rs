//! The component's exports, implemented with a [`CompletionRule`] or [`ResponseRule`].

use std::sync::{Mutex, OnceLock};

use crate::batch::Batch;
use crate::bindings::{self, Reply, Request, ResponseOutcome, SentenceOutcome};
use crate::rule::score_completion;
use crate::{
    Capability, Completion, CompletionRule, CorpusInfo, CreditKind, Manifest, ResponseRule,
    RuleSettings, Verdict,
};

/// Exports a sentence rule from this crate's component. Name, version and summary are the package's.
#[macro_export]
macro_rules! export {
    ($rule:ty) => {
        $crate::component!($rule, $crate::CompletionRule, $crate::bindings, {
            fn describe() -> $crate::Manifest {
                $crate::glue::sentence_manifest::<$rule>($crate::package!())
            }

            fn score(
                completions: Vec<$crate::Completion>,
                corpus: $crate::CorpusInfo,
            ) -> Vec<Vec<$crate::bindings::SentenceOutcome>> {
                $crate::glue::score(&RULE, completions, corpus)
            }

            fn resume(
                replies: Vec<$crate::bindings::Reply>,
            ) -> Vec<Vec<$crate::bindings::SentenceOutcome>> {
                $crate::glue::resume_score(&RULE, replies)
            }
        });
    };
}

/// Exports a response rule from this crate's component. Name, version and summary are the package's.
#[macro_export]
macro_rules! export_response_rule {
    ($rule:ty) => {
        $crate::component!($rule, $crate::ResponseRule, $crate::bindings::response, {
            fn describe() -> $crate::Manifest {
                $crate::glue::response_manifest::<$rule>($crate::package!())
            }

            fn grade(
                completions: Vec<$crate::Completion>,
                corpus: $crate::CorpusInfo,
            ) -> Vec<$crate::bindings::ResponseOutcome> {
                $crate::glue::grade(&RULE, completions, corpus)
            }

            fn resume(
                replies: Vec<$crate::bindings::Reply>,
            ) -> Vec<$crate::bindings::ResponseOutcome> {
                $crate::glue::resume_grade(&RULE, replies)
            }
        });
    };
}

/// The name, version and summary of the package that exports a rule.
#[doc(hidden)]
#[macro_export]
macro_rules! package {
    () => {
        $crate::glue::Package {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: env!("CARGO_PKG_DESCRIPTION"),
        }
    };
}

/// The parts that both kinds of component share.
#[doc(hidden)]
#[macro_export]
macro_rules! component {
    ($rule:ty, $kind:path, $($bindings:ident)::+, { $($exports:item)* }) => {
        const _: () = {
            /// The component.
            struct Component;
            static RULE: ::std::sync::OnceLock<$rule> = ::std::sync::OnceLock::new();

            impl $($bindings)::+::Guest for Component {
                fn configure(settings: String) -> Result<(), String> {
                    $crate::glue::configure(&RULE, &settings, <$rule as $kind>::validate)
                }

                $($exports)*
            }

            $crate::statement!("authors", env!("CARGO_PKG_AUTHORS"));
            $crate::statement!("licenses", env!("CARGO_PKG_LICENSE"));
            $crate::statement!("revision", match option_env!("CORVER_REVISION") {
                Some(revision) => revision,
                None => "",
            });

            // Natively a rule is a library to test. Only WebAssembly has exports of these names,
            // and one thread.
            #[cfg(target_family = "wasm")]
            $($bindings)::+::export!(Component with_types_in $($bindings)::+);
        };
    };
}

/// A custom section of the WebAssembly file: a statement about its origin, which `corver-host plugin
/// check` prints.
#[doc(hidden)]
#[macro_export]
macro_rules! statement {
    ($section:literal, $text:expr) => {
        const _: () = {
            const TEXT: &str = $text;
            #[cfg_attr(target_family = "wasm", unsafe(link_section = $section))]
            #[used]
            static BYTES: [u8; TEXT.len()] = *TEXT.as_bytes().first_chunk().unwrap();
        };
    };
}

pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub summary: &'static str,
}

pub fn sentence_manifest<R: CompletionRule>(package: Package) -> Manifest {
    manifest::<R>(package, R::REQUIRES, R::READS_TRIPLETS, R::CREDIT)
}

/// A response rule sees triplets if a sentence rule of the run reads them.
pub fn response_manifest<R: ResponseRule>(package: Package) -> Manifest {
    manifest::<R>(package, R::REQUIRES, false, CreditKind::AllTokens)
}

fn manifest<S: RuleSettings>(
    package: Package,
    requires: &[Capability],
    reads_triplets: bool,
    credit: CreditKind,
) -> Manifest {
    report_panics();
    Manifest {
        name: package.name.to_owned(),
        version: package.version.to_owned(),
        summary: package.summary.to_owned(),
        settings_schema: S::schema(),
        requires: requires.to_vec(),
        reads_triplets,
        credit,
    }
}

pub fn configure<R: RuleSettings>(
    rule: &OnceLock<R>,
    settings: &str,
    validate: impl FnOnce(&R) -> Result<(), String>,
) -> Result<(), String> {
    report_panics();
    rule.set(crate::settings::validated(settings, validate)?)
        .map_err(|_| "the rule is configured already".to_owned())
}

/// The batch of this instance.
static BATCH: Mutex<Option<Batch>> = Mutex::new(None);

pub fn score<R: CompletionRule>(
    rule: &OnceLock<R>,
    completions: Vec<Completion>,
    corpus: CorpusInfo,
) -> Vec<Vec<SentenceOutcome>> {
    let num_sentences = |completion: &Completion| completion.sentences.len();
    start(Batch::new(completions, corpus, num_sentences), |batch| run_sentence_rule(rule, batch))
}

pub fn resume_score<R: CompletionRule>(
    rule: &OnceLock<R>,
    replies: Vec<Reply>,
) -> Vec<Vec<SentenceOutcome>> {
    resume(replies, |batch| run_sentence_rule(rule, batch))
}

fn run_sentence_rule<R: CompletionRule>(
    rule: &OnceLock<R>,
    batch: &mut Batch,
) -> Vec<Vec<SentenceOutcome>> {
    let rule = rule.get().expect(CONFIGURED);
    let completions = batch.run(|completion, corpora| score_completion(rule, completion, corpora));
    completions
        .into_iter()
        .map(|outcomes| outcomes.into_iter().map(sentence_outcome).collect())
        .collect()
}

fn sentence_outcome(outcome: Result<Verdict, Vec<Request>>) -> SentenceOutcome {
    match outcome {
        Ok(Verdict { reward: Some(reward), count, triplet, note, credit }) => {
            SentenceOutcome::Done(bindings::Verdict { reward, count, triplet, note, credit })
        }
        Ok(Verdict { reward: None, note, .. }) => SentenceOutcome::Abstain(note),
        Err(requests) => SentenceOutcome::Pending(requests),
    }
}

pub fn grade<R: ResponseRule>(
    rule: &OnceLock<R>,
    completions: Vec<Completion>,
    corpus: CorpusInfo,
) -> Vec<ResponseOutcome> {
    start(Batch::new(completions, corpus, |_| 1), |batch| run_response_rule(rule, batch))
}

pub fn resume_grade<R: ResponseRule>(
    rule: &OnceLock<R>,
    replies: Vec<Reply>,
) -> Vec<ResponseOutcome> {
    resume(replies, |batch| run_response_rule(rule, batch))
}

fn run_response_rule<R: ResponseRule>(
    rule: &OnceLock<R>,
    batch: &mut Batch,
) -> Vec<ResponseOutcome> {
    let rule = rule.get().expect(CONFIGURED);
    let completions = batch.run(|completion, corpora| vec![rule.grade(completion, &corpora[0])]);
    let mut outcomes = Vec::with_capacity(completions.len());
    for outcome in completions.into_iter().flatten() {
        outcomes.push(match outcome {
            Ok(grade) => ResponseOutcome::Done(grade),
            Err(requests) => ResponseOutcome::Pending(requests),
        });
    }
    outcomes
}

fn start<T>(batch: Batch, run: impl FnOnce(&mut Batch) -> T) -> T {
    run(BATCH.lock().expect(NOT_POISONED).insert(batch))
}

fn resume<T>(replies: Vec<Reply>, run: impl FnOnce(&mut Batch) -> T) -> T {
    let mut batch = BATCH.lock().expect(NOT_POISONED);
    let batch = batch.as_mut().expect("the contract: `resume` follows pending outcomes");
    batch.reply(replies);
    run(batch)
}

const CONFIGURED: &str = "the contract: `configure` comes first";
const NOT_POISONED: &str = "a panic ends the instance";

/// A panic ends as a trap without a message; the hook reports its text first. Natively, the panic
/// hook is unchanged.
fn report_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| bindings::report(&panic.to_string())));
}
