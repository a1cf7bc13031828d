//! The small fictional world that is the default of every command: an encyclopaedia of invented
//! people, films and places, with the facts, articles, questions and sentences that go with it, all
//! from one seed.
//!
//! [`World`] holds entities and facts; [`article`] tells them in running text, [`phrasing`] asks about them,
//! [`sentence`] states them, true or not, [`Truth`] knows which, and [`answers`] are what the world says to rules that ask.
//! [`materialise`] unpacks the two models as they ship: a policy
//! that knows the world imperfectly, and an extractor that reads its sentences. The crate
//! `corver-demo-models` makes them.

pub mod answers;
pub mod article;
mod assets;
mod error;
mod name;
pub mod phrasing;
mod reader;
pub mod relation;
pub mod sentence;
mod stated;
mod truth;
pub mod world;

pub use answers::{DemoChat, DemoNli, Errors};
pub use article::Article;
pub use assets::{
    DemoPaths, WINDOW, WORLD_SEED, content_hash, demo_corpus, demo_questions, demo_world,
    materialise,
};
pub use error::DemoError;
pub use name::pick;
pub use phrasing::Split;
pub use relation::{Kind, Relation};
pub use sentence::Sample;
pub use truth::Truth;
pub use world::{Entity, EntityId, Fact, World, WorldSize};
