//! The demo: a small fictional encyclopaedia of invented people, films and places, which is the
//! default of every command. Its facts, articles, questions and sentences follow from one seed.
//!
//! ```text
//! world, relation, name   entities and facts
//! article                 facts ─▶ running text, the demo's corpus
//! phrasing                facts ─▶ questions
//! sentence                sentences, true or not, with their triplets
//! truth                   whether a sentence is true
//! answers                 replies to NLI and chat requests of rules
//! assets                  the shipped models, unpacked into a folder
//! ```
//!
//! The shipped models are a policy that knows the world imperfectly, and an extractor that reads its
//! sentences. The crate `corver-demo-models` trains them.

pub mod answers;
pub mod article;
mod assets;
mod clause;
mod error;
mod name;
pub mod phrasing;
mod reader;
pub mod relation;
pub mod sentence;

mod truth;
pub mod world;

pub use answers::{DemoChat, DemoNli, InjectedErrors};
pub use article::Article;
pub use assets::{
    DemoPaths, WINDOW, WORLD_SEED, content_hash, demo_corpus, demo_questions, demo_world,
    materialise,
};
pub use error::DemoError;
pub use name::pick;
pub use phrasing::QuestionSplit;
pub use relation::{EntityKind, Relation};
pub use sentence::Sample;
pub use truth::WorldTruth;
pub use world::{Entity, EntityId, Fact, World, WorldSize};
