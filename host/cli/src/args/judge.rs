//! Arguments of `corver-host judge`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Graded answers (answers_*.jsonl of a run, or files of `eval --out`), or sheets of sentences
    /// (`calibrate draw`), labelled or not. Several files are judged together; sheets of the same
    /// sentences count as labels of several people.
    #[arg(required = true, value_name = "ANSWERS.jsonl|SHEET.csv")]
    pub files: Vec<PathBuf>,
    /// Questions of the answers, with their golds. Repeatable. Not for sheets.
    #[arg(long, value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// TOML file with the prompt, labels, model and prices. Default: the built-in
    /// configs/judge/answer.toml or sentence.toml.
    #[arg(long, value_name = "FILE")]
    pub prompt: Option<PathBuf>,
    /// Base URL of an OpenAI-compatible API, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Name of the chat model at the endpoint.
    #[arg(long, value_name = "NAME")]
    pub chat_model: Option<String>,
    /// File with the API key. Default: the environment variable of `chat.key_variable` in the file of
    /// --prompt, or OPENAI_API_KEY for api.openai.com.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Send no more requests after this amount is spent. Needs prices in the file of --prompt. Replies
    /// received until then are saved.
    #[arg(long, value_name = "AMOUNT")]
    pub max_cost: Option<f64>,
    /// Use only the first N answers or sentences.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Output folder. Default: the next free runs/judge-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
