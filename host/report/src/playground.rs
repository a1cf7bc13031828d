//! The playground of a rule: a form with its settings, and a run's sentences in the colours of their
//! rewards. After each change the page requests [`sentences`] from its server.

use std::cell::Cell;

use corver_core::{RewardSettings, Trace};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::page::{escape_page, page_with_script, table};
use crate::{completion, number};

/// Path of [`SCRIPT`] on the server.
pub const SCRIPT_PATH: &str = "/playground.js";
/// Path to which the page sends `{"settings"}`; the reply is `{"html"}`, or `{"error"}`.
pub const SENTENCES_PATH: &str = "/sentences";
/// Script of the page.
pub const SCRIPT: &str = include_str!("playground.js");
/// Largest number of settings in a form. A schema that refers to itself has no end.
const MAX_FIELDS: usize = 200;

/// A rule whose settings the page changes.
#[derive(Debug, Clone)]
pub struct PlayedRule {
    /// Name of the rule.
    pub name: String,
    /// One line about the rule's purpose.
    pub summary: String,
    /// JSON schema of its settings.
    pub schema: Value,
    /// Settings at the start.
    pub settings: Map<String, Value>,
}

/// Returns the page. `origin` names run and step; the traces have the rewards at the start.
#[must_use]
pub fn playground(
    rule: &PlayedRule,
    origin: &str,
    traces: &[Trace],
    settings: &RewardSettings,
) -> String {
    let title = format!("Settings of {}", rule.name);
    let chosen = Value::Object(rule.settings.clone());
    let num_fields = Cell::new(0);
    let fields = field("", &rule.schema, &rule.schema, Some(&chosen), &json!([]), &num_fields);
    let body = html! {
        h1 { (title) }
        p.lead { (rule.summary) }
        p.soft { (origin) }
        form.settings { (fields) }
        @if num_fields.get() > MAX_FIELDS {
            p.soft { "The form has the first " (MAX_FIELDS) " settings only." }
        }
        p.warn #problem role="alert" {}
        div #sentences { (coloured(traces, settings)) }
    };
    page_with_script(&title, SCRIPT_PATH, &body)
}

/// Returns the part of the page that changes: completions with coloured sentences, and a table of
/// their rewards.
#[must_use]
pub fn sentences(traces: &[Trace], settings: &RewardSettings) -> String {
    escape_page(&coloured(traces, settings).into_string())
}

fn coloured(traces: &[Trace], settings: &RewardSettings) -> Markup {
    html! {
        (rewards(traces))
        (completion::scale())
        @for trace in traces {
            h3 { (trace.question) }
            (completion::coloured(trace, settings))
        }
    }
}

/// Returns a table with the number of sentences by the sign of their reward, and the mean reward.
fn rewards(traces: &[Trace]) -> Markup {
    let (mut above, mut zero, mut below, mut abstained, mut sum) = (0, 0, 0, 0, 0.0);
    for sentence in traces.iter().flat_map(|trace| &trace.sentences) {
        sum += sentence.reward();
        match sentence.verdict.as_ref().and_then(|verdict| verdict.reward) {
            None => abstained += 1,
            Some(reward) if reward > 0.0 => above += 1,
            Some(reward) if reward < 0.0 => below += 1,
            Some(_) => zero += 1,
        }
    }
    let all = above + zero + below + abstained;
    let mean = if all == 0 { 0.0 } else { sum / f64::from(all) };
    let header = ["", "above 0", "0", "below 0", "abstained", "mean reward"];
    let mut row = vec!["sentences".to_owned()];
    row.extend([above, zero, below, abstained].map(|number: u32| number.to_string()));
    row.push(number::with_sign(mean));
    table(&header, &[row])
}

/// Returns the inputs of a setting, and adds it to `num_fields`; no inputs after [`MAX_FIELDS`].
/// `path` is the array of keys and indexes that leads to the setting, and `chosen` its value at the
/// start, if the default is not used.
fn field(
    name: &str,
    schema: &Value,
    root: &Value,
    chosen: Option<&Value>,
    path: &Value,
    num_fields: &Cell<usize>,
) -> Markup {
    num_fields.set(num_fields.get() + 1);
    if num_fields.get() > MAX_FIELDS {
        return html! {};
    }
    let value = chosen.or_else(|| schema.get("default"));
    let meaning = schema["description"].as_str();
    let schema = resolve(schema, root);
    if let Some(properties) = schema["properties"].as_object() {
        return html! {
            fieldset {
                @if !name.is_empty() { legend title=[meaning] { (name) } }
                @for (key, property) in properties {
                    @let part = value.and_then(|all| all.get(key));
                    (field(key, property, root, part, &below(path, json!(key)), num_fields))
                }
            }
        };
    }
    match value.and_then(Value::as_array) {
        Some(numbers) if numbers.iter().all(Value::is_number) => html! {
            fieldset {
                legend title=[meaning] { (name) }
                @for (n, number) in numbers.iter().enumerate() {
                    (input(&n.to_string(), None, &schema["items"], number, &below(path, json!(n))))
                }
            }
        },
        _ => input(name, meaning, schema, value.unwrap_or(&Value::Null), path),
    }
}

/// Returns the input of a number, switch, choice or text; of JSON for every other value.
fn input(name: &str, meaning: Option<&str>, schema: &Value, value: &Value, path: &Value) -> Markup {
    let choices = schema["enum"].as_array();
    let control = match (schema["type"].as_str(), value, choices) {
        (Some(kind @ ("number" | "integer")), Value::Number(number), _) => {
            let step = if kind == "integer" { "1" } else { "0.05" };
            // A step of 0.05 is for the arrow keys; `any` would make it 1.
            html! {
                input type="number" step=(step) value=(number) data-kind="number" data-path=(path);
            }
        }
        (_, Value::Bool(is_on), _) => html! {
            input type="checkbox" checked[*is_on] data-kind="boolean" data-path=(path);
        },
        (Some("string"), Value::String(text), Some(choices)) => html! {
            select data-kind="text" data-path=(path) {
                @for choice in choices.iter().filter_map(Value::as_str) {
                    option value=(choice) selected[choice == text] { (choice) }
                }
            }
        },
        (Some("string"), Value::String(text), None) => html! {
            input type="text" value=(text) data-kind="text" data-path=(path);
        },
        _ => html! { input type="text" value=(value) data-kind="json" data-path=(path); },
    };
    html! { label title=[meaning] { span { (name) } (control) } }
}

fn below(path: &Value, key: Value) -> Value {
    let mut longer = path.as_array().cloned().unwrap_or_default();
    longer.push(key);
    Value::Array(longer)
}

/// Returns the definition that a schema refers to, or the schema itself.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let definition = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#'));
    definition.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::trace;

    #[test]
    fn form_has_an_input_for_every_kind_of_setting() {
        let schema = json!({
            "$defs": {"Tiers": {"type": "object", "properties": {
                "rewards": {"type": "array", "items": {"type": "number"}, "default": [-0.3, 0.1]},
            }}},
            "type": "object",
            "properties": {
                "tiers": {"$ref": "#/$defs/Tiers", "default": {"rewards": [-0.3, 0.1]}},
                "floor": {"type": "integer", "default": 5, "description": "Smallest <count>."},
                "strict": {"type": "boolean", "default": true},
                "order": {"type": "string", "enum": ["first", "last"], "default": "last"},
                "word": {"type": "string", "default": "a\"b"},
                "cap": {"type": ["number", "null"], "default": null},
            },
        });
        let settings = json!({"floor": 7}).as_object().unwrap().clone();
        let rule = PlayedRule { name: "mine".into(), summary: "a <rule>".into(), schema, settings };
        let trace = trace("q", "Rome is big.", 1.0);
        let page = playground(&rule, "run r, step 3", &[trace], &RewardSettings::default());
        for part in [
            r#"value="-0.3" data-kind="number" data-path="[&quot;tiers&quot;,&quot;rewards&quot;,0]""#,
            r#"step="1" value="7" data-kind="number" data-path="[&quot;floor&quot;]""#,
            r#"title="Smallest &lt;count&gt;.""#,
            r#"type="checkbox" checked data-kind="boolean""#,
            r#"<option value="last" selected>last</option>"#,
            r#"value="a&quot;b" data-kind="text""#,
            r#"value="null" data-kind="json" data-path="[&quot;cap&quot;]""#,
            r#"<td>sentences</td><td>1</td><td>0</td><td>0</td><td>0</td><td>+0.10</td>"#,
            r#"<mark class="plus-1">Rome is big."#,
            r#"<script src="/playground.js" defer></script>"#,
            "a &lt;rule&gt;",
        ] {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
    }

    #[test]
    fn form_of_schema_that_refers_to_itself_has_an_end() {
        let schema = json!({"properties": {"one": {"$ref": "#"}, "two": {"$ref": "#"}}});
        let rule = PlayedRule {
            name: "mine".into(),
            summary: String::new(),
            schema,
            settings: Map::new(),
        };
        let page = playground(&rule, "run r, step 3", &[], &RewardSettings::default());
        assert_eq!(page.matches("<fieldset>").count(), MAX_FIELDS);
        assert!(page.contains("The form has the first 200 settings only."), "{page}");
    }

    #[test]
    fn changed_part_escapes_texts() {
        let hostile = trace("<img src=x>\u{202e}", "Rome is <b>.", 1.0);
        let part = sentences(&[hostile], &RewardSettings::default());
        assert!(part.contains(r"&lt;img src=x&gt;\u202e") && !part.contains("<b>"), "{part}");
    }
}
