//! Between the component's exports and a [`CompletionRule`] or [`ResponseRule`].

use std::sync::{Mutex, OnceLock};

use crate::batch::{Batch, Said};
use crate::bindings::{Assessment, Outcome, Reply};
use crate::{
    Completion, CompletionRule, CorpusSize, Grade, Judgement, Manifest, ResponseRule, Settings,
    Verifier,
};

/// Makes a sentence rule the component that this crate compiles to. Its name, version and summary
/// are the package's.
#[macro_export]
macro_rules! export {
    ($rule:ty) => {
        $crate::component!($rule, $crate::CompletionRule, $crate::bindings, {
            fn score(
                completions: Vec<$crate::Completion>,
                corpus: $crate::CorpusSize,
            ) -> Vec<Vec<$crate::bindings::Outcome>> {
                $crate::glue::score(&RULE, completions, corpus)
            }

            fn resume(
                replies: Vec<$crate::bindings::Reply>,
            ) -> Vec<Vec<$crate::bindings::Outcome>> {
                $crate::glue::resume(&RULE, replies)
            }
        });
    };
}

/// Makes a response rule the component that this crate compiles to. Its name, version and summary
/// are the package's.
#[macro_export]
macro_rules! export_response_rule {
    ($rule:ty) => {
        $crate::component!($rule, $crate::ResponseRule, $crate::bindings::response, {
            fn assess(
                completions: Vec<$crate::Completion>,
                corpus: $crate::CorpusSize,
            ) -> Vec<$crate::bindings::Assessment> {
                $crate::glue::assess(&RULE, completions, corpus)
            }

            fn resume(replies: Vec<$crate::bindings::Reply>) -> Vec<$crate::bindings::Assessment> {
                $crate::glue::reassess(&RULE, replies)
            }
        });
    };
}

/// What both kinds of component have in common.
#[doc(hidden)]
#[macro_export]
macro_rules! component {
    ($rule:ty, $kind:path, $($bindings:ident)::+, { $($exports:item)* }) => {
        const _: () = {
            /// The component.
            struct Component;
            static RULE: ::std::sync::OnceLock<$rule> = ::std::sync::OnceLock::new();

            impl $($bindings)::+::Guest for Component {
                fn describe() -> $crate::Manifest {
                    $crate::glue::describe::<$rule>(
                        env!("CARGO_PKG_NAME"),
                        env!("CARGO_PKG_VERSION"),
                        env!("CARGO_PKG_DESCRIPTION"),
                        <$rule as $kind>::ASKS,
                        <$rule as $kind>::READS_TRIPLETS,
                    )
                }

                fn configure(settings: String) -> Result<(), String> {
                    $crate::glue::configure(&RULE, &settings, <$rule as $kind>::validate)
                }

                $($exports)*
            }

            // Natively a rule is a library to test; only WebAssembly has exports of these names,
            // and one thread.
            #[cfg(target_family = "wasm")]
            $($bindings)::+::export!(Component with_types_in $($bindings)::+);
        };
    };
}

pub fn describe<R: Settings>(
    name: &str,
    version: &str,
    summary: &str,
    asks: &[Verifier],
    reads_triplets: bool,
) -> Manifest {
    hand_over_panics();
    let [name, version, summary] = [name, version, summary].map(str::to_owned);
    Manifest {
        name,
        version,
        summary,
        settings_schema: R::schema(),
        asks: asks.to_vec(),
        reads_triplets,
    }
}

pub fn configure<R: Settings>(
    rule: &OnceLock<R>,
    settings: &str,
    validate: impl FnOnce(&R) -> Result<(), String>,
) -> Result<(), String> {
    hand_over_panics();
    rule.set(crate::settings::validated(settings, validate)?)
        .map_err(|_| "the rule is configured already".to_owned())
}

/// What is judged, until nothing is asked any more.
static BATCH: Mutex<Option<Batch>> = Mutex::new(None);

pub fn score<R: CompletionRule>(
    rule: &OnceLock<R>,
    completions: Vec<Completion>,
    corpus: CorpusSize,
) -> Vec<Vec<Outcome>> {
    begin(Batch::new(completions, corpus, |completion| completion.sentences.len()), |batch| {
        judged(rule, batch)
    })
}

pub fn resume<R: CompletionRule>(rule: &OnceLock<R>, replies: Vec<Reply>) -> Vec<Vec<Outcome>> {
    go_on(replies, |batch| judged(rule, batch))
}

fn judged<R: CompletionRule>(rule: &OnceLock<R>, batch: &mut Batch) -> Vec<Vec<Outcome>> {
    let rule = rule.get().expect(CONFIGURED);
    let outcome = |said: Said<Judgement>| match said {
        Ok(Judgement::Score(verdict)) => Outcome::Score(verdict),
        Ok(Judgement::Abstain(why)) => Outcome::Abstain(why),
        Err(requests) => Outcome::Ask(requests),
    };
    let said = batch.judge(|completion, corpora| rule.judge(completion, corpora));
    said.into_iter().map(|completion| completion.into_iter().map(outcome).collect()).collect()
}

pub fn assess<R: ResponseRule>(
    rule: &OnceLock<R>,
    completions: Vec<Completion>,
    corpus: CorpusSize,
) -> Vec<Assessment> {
    begin(Batch::new(completions, corpus, |_| 1), |batch| graded(rule, batch))
}

pub fn reassess<R: ResponseRule>(rule: &OnceLock<R>, replies: Vec<Reply>) -> Vec<Assessment> {
    go_on(replies, |batch| graded(rule, batch))
}

fn graded<R: ResponseRule>(rule: &OnceLock<R>, batch: &mut Batch) -> Vec<Assessment> {
    let rule = rule.get().expect(CONFIGURED);
    let assessment = |said: Said<Grade>| match said {
        Ok(grade) => Assessment::Graded(grade),
        Err(requests) => Assessment::Ask(requests),
    };
    let said = batch.judge(|completion, corpora| vec![rule.grade(completion, &corpora[0])]);
    said.into_iter().flatten().map(assessment).collect()
}

fn begin<T>(batch: Batch, judge: impl FnOnce(&mut Batch) -> T) -> T {
    judge(BATCH.lock().expect(UNBROKEN).insert(batch))
}

fn go_on<T>(replies: Vec<Reply>, judge: impl FnOnce(&mut Batch) -> T) -> T {
    let mut batch = BATCH.lock().expect(UNBROKEN);
    let batch = batch.as_mut().expect("the contract: `resume` comes after what asked");
    batch.reply(replies);
    judge(batch)
}

const CONFIGURED: &str = "the contract: `configure` comes first";
const UNBROKEN: &str = "a panic ends the instance";

/// A panic ends as a trap without words; its text takes this way out. Natively, panics keep the
/// hook they have.
fn hand_over_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| crate::bindings::report(&panic.to_string())));
}
