//! Prompts of small chat templates, each with a construct of published ones. The texts are those of
//! `transformers` 5.24; `peers/templates.py templates.json` writes them.

mod rendering;

#[test]
fn prompts_match_transformers() {
    let templates: Vec<rendering::PublishedTemplate> =
        serde_json::from_str(include_str!("templates.json")).unwrap();
    rendering::assert_texts(&templates);
}
