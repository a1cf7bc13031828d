//! The page of benchmarks, rendered from its text and the recorded figures in docs/benchmarks.

use std::fs;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns a number that is rounded to some significant digits, 3 by default.
fn digits(value: f64, significant: Option<usize>) -> String {
    let significant = significant.unwrap_or(3);
    let rounded: f64 = format!("{value:.*e}", significant - 1).parse().unwrap();
    let before_point = if rounded == 0.0 { 1 } else { rounded.abs().log10().floor() as i32 + 1 };
    commas(&format!("{rounded:.*}", (significant as i32 - before_point).max(0) as usize))
}

/// Returns a number with a comma before every three digits.
fn commas(number: &str) -> String {
    let (whole, decimals) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0
            && (whole.len() - index).is_multiple_of(3)
            && whole.as_bytes()[index - 1] != b'-'
        {
            text.push(',');
        }
        text.push(digit);
    }
    text + decimals
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) }
}

/// Returns the row of a list that has this text as a field, or as its first element.
fn row(rows: Value, text: &str) -> Result<Value, Error> {
    for row in rows.try_iter()? {
        for key in row.try_iter()? {
            let field = if row.kind() == ValueKind::Map { row.get_item(&key)? } else { key };
            if field.as_str() == Some(text) {
                return Ok(row);
            }
        }
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("no row has {text:?}")))
}

/// Returns docs/benchmarks.md, rendered.
fn page() -> String {
    let folder = docs().join("benchmarks");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.unwrap());
    environment.add_filter("commas", |number: Value| commas(&number.to_string()));
    environment.add_filter("digits", digits);
    environment.add_filter("median", median);
    environment.add_filter("row", row);
    let mut records = serde_json::Map::new();
    for file in fs::read_dir(&folder).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "json") {
            let name = file.file_stem().unwrap().to_str().unwrap().replace('-', "_");
            records.insert(name, serde_json::from_slice(&fs::read(file).unwrap()).unwrap());
        }
    }
    let text = fs::read_to_string(folder.join("page.md")).unwrap();
    environment
        .render_str(&text, Value::from(Serde(records)))
        .unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn benchmarks_page_has_recorded_figures() {
    let path = docs().join("benchmarks.md");
    if std::env::var_os("CORVER_WRITE").is_some() {
        fs::write(&path, page()).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == page(),
        "docs/benchmarks.md differs from what docs/benchmarks/ renders; CORVER_WRITE=1 writes it again"
    );
}

#[test]
fn readme_repeats_recorded_figures() {
    let readme = fs::read_to_string(docs().join("../README.md")).unwrap();
    let page = page();
    let row = page.lines().find(|line| line.starts_with("| entity pairs, p50")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    for figure in [cells[2], cells[3]] {
        assert!(readme.contains(figure), "README.md does not have {figure}");
    }
}

#[test]
fn digits_are_rounded_to_significance() {
    for (value, significant, text) in [
        (1.3349, Some(3), "1.33"),
        (0.5, None, "0.500"),
        (244.4, None, "244"),
        (20_449.0, None, "20,400"),
        (1_234_567.0, Some(2), "1,200,000"),
        (9.96, Some(2), "10"),
        (-1500.0, Some(2), "-1,500"),
        (0.0, Some(1), "0"),
    ] {
        assert_eq!(digits(value, significant), text);
    }
}
