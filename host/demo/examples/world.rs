//! Writes the articles of a demo world of any size, and the demo's tokenizer:
//! `cargo run --release -p corver-demo --example world -- FOLDER FACTS`.

use std::io::Write;
use std::path::PathBuf;

use corver_demo::{World, WorldSize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(facts)) = (arguments.next().map(PathBuf::from), arguments.next())
    else {
        return Err("usage: world FOLDER FACTS".into());
    };
    std::fs::create_dir_all(&folder)?;
    let demo = corver_demo::materialise(&folder)?;
    std::fs::copy(demo.policy.join("tokenizer.json"), folder.join("tokenizer.json"))?;
    let world = World::generate(corver_demo::WORLD_SEED, &WorldSize::with_facts(facts.parse()?));
    let mut out = std::io::BufWriter::new(std::fs::File::create(folder.join("articles.jsonl"))?);
    for article in world.articles() {
        writeln!(out, "{}", serde_json::json!({"title": article.title, "text": article.text}))?;
    }
    Ok(out.flush()?)
}
