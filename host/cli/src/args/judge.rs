//! `corver-host judge`: what it takes.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Graded answers (answers_raw.jsonl or answers_trained.jsonl of a run, or a file of `eval
    /// --out`), or sheets of sentences (`calibrate draw`), labelled or not. Several are judged as
    /// one; sheets of the same sentences are several people's.
    #[arg(required = true, value_name = "ANSWERS.jsonl|SHEET.csv")]
    pub files: Vec<PathBuf>,
    /// The questions that were answered, for their golds; repeatable. Needed for answers; sentences
    /// are judged without.
    #[arg(long, value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// TOML file of the judge: prompt, labels, model and prices. Default: configs/judge/answer.toml
    /// or sentence.toml, which are built in.
    #[arg(long, value_name = "FILE")]
    pub judge: Option<PathBuf>,
    /// Base of an OpenAI-compatible API, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The chat model, by the endpoint's name for it.
    #[arg(long, value_name = "NAME")]
    pub chat_model: Option<String>,
    /// File with the API's key. Default: what the environment variable OPENAI_API_KEY holds, if
    /// anything.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Begin no request once so much was spent. Needs prices in the judge's file. What was answered
    /// is kept.
    #[arg(long, value_name = "AMOUNT")]
    pub max_cost: Option<f64>,
    /// Only the first N answers or sentences.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Folder for what is found. Default: the next free runs/judge-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
