//! The tables of figures and metrics in docs/training.md; `CORVER_WRITE=1` writes them again.

use std::fmt::Write as _;
use std::path::Path;

use corver_eval::{FIGURES, Figure};
use corver_train::metrics::METRICS;

#[test]
fn documented_metric_tables_are_current() {
    check("metrics", &metrics());
    check("figures", &figures());
}

/// Compares the lines between `<!-- NAME of … -->` and `<!-- end of NAME -->` with `table`.
fn check(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/training.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = page.find(&format!("<!-- {name} of")).expect("the table has a mark");
    let begin = begin + page[begin..].find('\n').unwrap() + 1;
    let end = page.find(&format!("<!-- end of {name}")).expect("the table has an end");
    if std::env::var_os("CORVER_WRITE").is_some() {
        std::fs::write(&path, [&page[..begin], table, &page[end..]].concat()).unwrap();
    } else {
        assert_eq!(&page[begin..end], table, "{name}: CORVER_WRITE=1 writes them again");
    }
}

/// Returns a row for each meaning.
fn metrics() -> String {
    let mut table = "| name | unit | meaning |\n| --- | --- | --- |\n".to_owned();
    let mut rest = METRICS;
    while let Some((first, others)) = rest.split_first() {
        let alike = others.iter().take_while(|metric| metric.meaning.is_empty()).count();
        let mut names = format!("`{}`", first.name);
        for metric in &others[..alike] {
            assert_eq!(metric.unit, first.unit, "{}", metric.name);
            match metric.name.split_once('/') {
                Some((group, name)) if first.name.starts_with(&format!("{group}/")) => {
                    write!(names, ", `…/{name}`").unwrap();
                }
                _ => write!(names, ", `{}`", metric.name).unwrap(),
            }
        }
        writeln!(table, "| {names} | {} | {} |", first.unit, first.meaning).unwrap();
        rest = &others[alike..];
    }
    table
}

fn figures() -> String {
    let mut table = "| figure | key | unit | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for Figure { name, title, unit, meaning, .. } in FIGURES {
        writeln!(table, "| {title} | `{name}` | {} | {meaning} |", unit.symbol()).unwrap();
    }
    table
}
