//! The policy of a build without libtorch: only an inference server can sample.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Result, bail};
use corver_core::{Decoding, Device, Question, Sampler, Sampling};
use corver_reward::config::PolicyConfig;
use corver_settings::Settings;

/// Error message of everything that needs the policy.
pub const NO_LIBTORCH: &str = "this corver-host was built without libtorch and has no policy; \
                               build it with the feature `torch`";

pub fn find_device(_: Device) -> Result<String> {
    bail!(NO_LIBTORCH)
}

/// Plans nothing: the server has its own memory.
pub fn fit(_: &mut Settings, _: &PolicyConfig, _: &Path, _: bool) -> Result<Option<String>> {
    Ok(None)
}

pub fn choose_threads(_: &mut Settings) -> Result<()> {
    Ok(())
}

pub fn open_sampler(
    _: &Settings,
    _: &Path,
    _: Option<&Path>,
    _: &str,
    _: (&[Question], &Sampling),
    _: impl FnMut(Decoding) -> ControlFlow<()> + 'static,
) -> Result<Box<dyn Sampler>> {
    bail!(NO_LIBTORCH)
}
