//! Entailment of texts, by small models.

mod answers;
mod folder;
mod golden;
mod published;
