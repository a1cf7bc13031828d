//! `corver-host mcp`: tools of an assistant, over standard input and output.

use anyhow::{Result, anyhow, bail};
use corver_core::Query;
use corver_corpus::parse_query;
use corver_mcp::{CheckArguments, CountArguments, PassagesArguments, Tools};
use corver_reward::Scorer;
use corver_reward::check::Text;
use corver_reward::config::{self, RewardConfig};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::McpArgs;
use crate::check_request::{CheckError, MAX_PASSAGES, check};
use crate::settings;

/// Passages of `find_passages`, if the client names no number.
const DEFAULT_PASSAGES: usize = 3;

pub fn run(args: &McpArgs) -> Result<()> {
    let settings = settings::load(&args.settings, &[&args.reward])?;
    let (settings, config) = config::resolve::<RewardConfig>(settings)?;
    corver_mcp::serve(ScorerTools(Scorer::open(&config, &settings)?))
}

struct ScorerTools(Scorer);

impl Tools for ScorerTools {
    fn check(&mut self, arguments: CheckArguments) -> Result<Value> {
        let CheckArguments { text, question, passages } = arguments;
        let texts = [Text { text, question, triplets: None }];
        let checked = check(&mut self.0, &texts, passages).map_err(|error| match error {
            CheckError::Invalid(message) | CheckError::TooLarge(message) => anyhow!(message),
            CheckError::Failed(error) => error,
        })?;
        object(&checked[0])
    }

    fn count(&mut self, arguments: CountArguments) -> Result<Value> {
        let query = Query { all_of: parse_query(&arguments.query)?, limit: None };
        let count = self.0.count(&query)?;
        if count.occurrences.is_none() {
            bail!("a word of {:?} has no tokens in this index's tokenizer", arguments.query);
        }
        object(&count)
    }

    fn passages(&mut self, arguments: PassagesArguments) -> Result<Value> {
        let limit = arguments.limit.unwrap_or(DEFAULT_PASSAGES);
        if !(1..=MAX_PASSAGES).contains(&limit) {
            bail!("\"limit\" is {limit}; 1 to {MAX_PASSAGES} passages are shown");
        }
        let passages = self.0.find_passages(&parse_query(&arguments.query)?, limit)?;
        Ok(json!({ "passages": passages }))
    }
}

/// Returns a value with the digits that the commands print: by itself, a JSON value holds an f32 as
/// the f64 that is nearest.
fn object(value: &impl Serialize) -> Result<Value> {
    Ok(serde_json::from_str(&serde_json::to_string(value)?)?)
}
