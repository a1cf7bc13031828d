//! what surrounds training: evaluation and the run directory.
