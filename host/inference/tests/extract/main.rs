//! Triplets of sentences, by small models.

mod decoding;
mod folder;
mod reference;
