//! build, open, verify and query a suffix-array index.
