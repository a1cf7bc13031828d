//! `corver-host settings`: the reference of all settings.

use anyhow::Result;
use corver_settings::{reference, schema};

use crate::output;

pub fn run(json: bool) -> Result<()> {
    if json {
        return output::json(&schema::json_schema());
    }
    output::lines(&reference::markdown());
    Ok(())
}
