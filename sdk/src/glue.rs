//! Between the component's exports and a [`CompletionRule`] or [`ResponseRule`].

use std::sync::{Mutex, OnceLock};

use crate::batch::Batch;
use crate::bindings::{self, Reply};
use crate::{Completion, CompletionRule, CorpusSize, Grade, Manifest, ResponseRule, Settings};

/// Makes a sentence rule the component that this crate compiles to. Its name, version and summary are the package's.
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

            fn resume(replies: Vec<$crate::bindings::Reply>) -> Vec<Vec<$crate::bindings::Outcome>> {
                $crate::glue::resume(&RULE, replies)
            }
        });
    };
}

/// Makes a response rule the component that this crate compiles to. Its name, version and summary are the package's.
#[macro_export]
macro_rules! export_response_rule {
    ($rule:ty) => {
        $crate::component!($rule, $crate::ResponseRule, $crate::bindings::response, {
            fn assess(completions: Vec<$crate::Completion>) -> Vec<$crate::Grade> {
                $crate::glue::assess(&RULE, &completions)
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
                    )
                }

                fn configure(settings: String) -> Result<(), String> {
                    $crate::glue::configure(&RULE, &settings, <$rule as $kind>::validate)
                }

                $($exports)*
            }

            // Natively a rule is a library to test; only WebAssembly has exports of these names, and one thread.
            #[cfg(target_family = "wasm")]
            $($bindings)::+::export!(Component with_types_in $($bindings)::+);
        };
    };
}

pub fn describe<R: Settings>(name: &str, version: &str, summary: &str) -> Manifest {
    hand_over_panics();
    Manifest { name: name.into(), version: version.into(), summary: summary.into(), settings_schema: R::schema() }
}

pub fn configure<R: Settings>(
    rule: &OnceLock<R>,
    settings: &str,
    validate: impl FnOnce(&R) -> Result<(), String>,
) -> Result<(), String> {
    hand_over_panics();
    rule.set(crate::settings::validated(settings, validate)?).map_err(|_| "the rule is configured already".to_owned())
}

/// What is judged, until nothing is asked any more.
static BATCH: Mutex<Option<Batch>> = Mutex::new(None);

pub fn score<R: CompletionRule>(
    rule: &OnceLock<R>,
    completions: Vec<Completion>,
    corpus: CorpusSize,
) -> Vec<Vec<bindings::Outcome>> {
    let mut batch = BATCH.lock().expect(UNBROKEN);
    batch.insert(Batch::new(completions, corpus)).judge(rule.get().expect(CONFIGURED))
}

pub fn resume<R: CompletionRule>(rule: &OnceLock<R>, replies: Vec<Reply>) -> Vec<Vec<bindings::Outcome>> {
    let mut batch = BATCH.lock().expect(UNBROKEN);
    let batch = batch.as_mut().expect("the contract: `score` comes before `resume`");
    batch.reply(replies);
    batch.judge(rule.get().expect(CONFIGURED))
}

pub fn assess<R: ResponseRule>(rule: &OnceLock<R>, completions: &[Completion]) -> Vec<Grade> {
    let rule = rule.get().expect(CONFIGURED);
    completions.iter().map(|completion| rule.grade(completion)).collect()
}

const CONFIGURED: &str = "the contract: `configure` comes first";
const UNBROKEN: &str = "a panic ends the instance";

/// A panic ends as a trap without words; its text takes this way out. Natively, panics keep the hook they have.
fn hand_over_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| bindings::report(&panic.to_string())));
}
