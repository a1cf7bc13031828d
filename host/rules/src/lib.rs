//! load, version, limit and run reward plugins.
