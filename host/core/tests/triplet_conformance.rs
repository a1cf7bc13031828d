//! The reply parser against vectors from the authors' published code. `make conformance` runs them.

#[path = "../../../tests/golden.rs"]
mod golden;

use corver_core::triplet::{Element, parse_elements, read_reply};
use corver_core::{ReplyGrammar, reply};
use golden::{check_all, same};
use serde_json::{Value, json};

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} is no string"))
}

fn as_json(elements: &[Element]) -> Value {
    serde_json::to_value(elements).expect("elements are plain data")
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn reply_parsing_matches_reference() {
    check_all("parse_case", |row| {
        let got = parse_elements(text(row, "text"));
        same("raises", json!(got.is_err()), row["raises"].clone())?;
        same(
            "parsed",
            got.map_or(Value::Null, |elements| as_json(&elements)),
            row["parsed"].clone(),
        )
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn reply_triplets_match_reference() {
    check_all("extract_postprocess", |row| {
        let reply = text(row, "response");
        same("triplets", as_json(&read_reply(reply)), row["triplets"].clone())?;
        let whole = row["triplets"].as_array().expect("a list").iter().filter_map(Value::as_array);
        let valid =
            whole.filter(|list| list.len() == 3 && list[0].is_string() && list[2].is_string());
        let triplets = reply::read(reply, ReplyGrammar::Reference).into_triplets();
        same("number of triplets", triplets.len(), valid.count())
    });
}
