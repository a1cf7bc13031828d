#![allow(missing_docs, dead_code)]
#[path = "peer/mix.rs"]
mod mix;
use corver_corpus::*;
use mix::*;
use std::time::Instant;
fn main() {
    let shared = std::path::PathBuf::from("/work/shared");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-index");
    let mut queries = golden(&shared);
    queries.sort_by_key(|q| if q.is_pair() { 0 } else { 2 - usize::from(q.is_ngram()) });
    for cache in [0, 256 << 20] {
        let index = Index::open_with(&path, OpenOptions { cache_bytes: cache, ..Default::default() }).unwrap();
        for (name, mode, enough) in
            [("compatible", Mode::Compatible, None), ("exact", Mode::Exact, None), ("enough", Mode::Exact, Some(20))]
        {
            let mut best = vec![u64::MAX; queries.len()];
            for group in 0..3 {
                if let Ok(only) = std::env::var("ONLY")
                    && only != group.to_string()
                {
                    continue;
                }
                for pass in 0..std::env::var("PASSES").map_or(if group == 2 { 5 } else { 9 }, |n| n.parse().unwrap()) {
                    for (i, q) in queries.iter().enumerate() {
                        let g = if q.is_pair() { 0 } else { 2 - usize::from(q.is_ngram()) };
                        if g != group {
                            continue;
                        }
                        let t = Instant::now();
                        match &q.ask {
                            Ask::Ngram(ids) => {
                                std::hint::black_box(index.count(ids).unwrap());
                            }
                            Ask::Cnf { cnf, max_clause_freq, max_diff_tokens } => {
                                let o = CnfOptions {
                                    max_clause_freq: *max_clause_freq,
                                    max_diff_tokens: *max_diff_tokens,
                                    mode,
                                };
                                std::hint::black_box(index.count_cnf(cnf, &o, enough).unwrap());
                            }
                        }
                        let e = t.elapsed().as_nanos() as u64;
                        if pass > 0 {
                            best[i] = best[i].min(e);
                        }
                    }
                }
            }
            let show = |label: &str, f: &dyn Fn(&Query) -> bool| {
                let mut v: Vec<u64> = queries.iter().zip(&best).filter(|(q, _)| f(q)).map(|(_, &t)| t).collect();
                v.sort_unstable();
                let n = v.len();
                println!(
                    "{label:10} n {n:5} p50 {:9.2} p95 {:9.2} p99 {:9.2} mean {:9.2} max {:9.2}",
                    v[n / 2] as f64 / 1e3,
                    v[n * 95 / 100] as f64 / 1e3,
                    v[n * 99 / 100] as f64 / 1e3,
                    v.iter().sum::<u64>() as f64 / n as f64 / 1e3,
                    v[n - 1] as f64 / 1e3
                );
            };
            println!("== cache {cache} {name}");
            show("ngram", &|q| q.is_ngram());
            show("pair", &|q| q.is_pair());
            show("freq", &|q| q.is_frequent_pair());
            show("mix", &|q| !q.is_ngram());
            if std::env::var_os("WORST").is_some() {
                let mut order: Vec<usize> = (0..queries.len()).collect();
                order.sort_by_key(|&i| std::cmp::Reverse(best[i]));
                for &i in &order[..12] {
                    let counts = if let Ask::Cnf { cnf, .. } = &queries[i].ask {
                        cnf.clauses()
                            .iter()
                            .map(|c| c.iter().map(|t| index.count(t).unwrap()).sum::<u64>())
                            .collect::<Vec<_>>()
                    } else {
                        vec![]
                    };
                    let Ask::Cnf { max_clause_freq, max_diff_tokens, .. } = queries[i].ask else { continue };
                    println!(
                        "   {:9.1} us {} {counts:?} cap {max_clause_freq} reach {max_diff_tokens}",
                        best[i] as f64 / 1e3,
                        queries[i].kind
                    );
                }
            }
        }
    }
}
