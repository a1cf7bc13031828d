//! One index on several machines: a process for each shard.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::host::{OTHER_INDEX, Server, host, lines, run_dir, short_run};
use crate::transcript::Transcript;

const SHARDS: usize = 3;

/// The demo's world, indexed in shards.
fn world(folder: &Path) -> PathBuf {
    let (world, index) = (folder.join("world"), folder.join("index"));
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let tokenizer =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/policy/tokenizer.json");
    let articles = world.join("articles.jsonl");
    let [articles, tokenizer, out] =
        [&articles, &tokenizer, &index].map(|path| path.to_str().unwrap());
    let shards = SHARDS.to_string();
    host(&[
        "index",
        "build",
        articles,
        "--tokenizer",
        tokenizer,
        "--out",
        out,
        "--shards",
        &shards,
    ])
    .good();
    index
}

/// What a machine needs of an index to serve one shard, in another folder.
fn copy_shard(index: &Path, shard: usize, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(index).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".json") || name.ends_with(&format!(".{shard}")) {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

/// A server for each shard, each with the files of its own shard alone.
fn servers(index: &Path, machines: &Path) -> Vec<Server> {
    let start = |shard: usize| {
        let folder = machines.join(shard.to_string()).join("wiki");
        copy_shard(index, shard, &folder);
        Server::start(
            &["--index", folder.to_str().unwrap(), "--shards", &shard.to_string()],
            "127.0.0.1:0",
        )
    };
    (0..SHARDS).map(start).collect()
}

/// `corpus.index` as a list.
fn list(servers: &[Server]) -> String {
    format!("corpus.index={:?}", servers.iter().map(|server| &server.url).collect::<Vec<_>>())
}

#[test]
fn three_shard_servers_count_like_one_index() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = world(folder.path());
    let mut servers = servers(&index, folder.path());
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    let here = ["--index", index.to_str().unwrap()];
    let there: Vec<&str> = urls.iter().flat_map(|url| ["--index", url.as_str()]).collect();
    assert!(servers[1].url.ends_with("/#wiki-1"), "{}", servers[1].url);

    let article = lines(&folder.path().join("world/articles.jsonl")).swap_remove(7);
    let text = article["text"].as_str().unwrap();
    let names: Vec<&str> =
        text.split([' ', '.', ',']).filter(|word| word.starts_with(char::is_uppercase)).collect();
    let mut queries: Vec<String> =
        names.windows(2).map(|pair| pair.join(" AND ")).take(4).collect();
    queries.extend([
        names[0].to_owned(),
        format!("the AND of OR in AND {}", names[0]),
        "the AND weasel".to_owned(),
    ]);
    let mut found = 0;
    for mode in ["exact", "span"] {
        for query in &queries {
            let count = |sources: &[&str]| {
                let ask =
                    ["index", "count", query, "--json", "--mode", mode, "--max-diff-tokens", "40"];
                let counted = host(&[&ask[..], sources].concat()).good().json();
                (counted["count"].clone(), counted["precision"].clone())
            };
            let counted = count(&there);
            assert_eq!(counted, count(&here), "{mode}: {query}");
            found += counted.0.as_u64().unwrap();
        }
    }
    assert!(found > 0);

    // A shard that two of them count would be counted twice, here and there.
    let mut twice = |sources: &[&str], names: &str| {
        let finished = host(&[&["index", "count", "the", "--mode", "exact"], sources].concat());
        assert!(finished.stderr.contains(names), "{finished}");
        transcript.add_failure(&finished);
    };
    twice(&[&there[..], &here].concat(), here[1]);
    twice(&[&here, &there[..2]].concat(), &servers[0].address);
    let set = format!("corpus.index={:?}", [&urls[0], index.to_str().unwrap()]);
    transcript.add_failure(&short_run(
        &run_dir("shards-twice"),
        1,
        &[&OTHER_INDEX[..], &["--set", &set]].concat(),
    ));
    for sources in [&there[..], &there[2..]] {
        let count = host(&[&["index", "count", "the", "--mode", "exact"], sources].concat());
        transcript.add(&count.good());
    }

    servers[1].signal("-KILL");
    let lost = host(&[&["index", "count", &queries[0]], &there[..]].concat());
    assert!(lost.stderr.contains(&servers[1].address), "{lost}");
    transcript.add_failure(&lost);
    insta::assert_snapshot!(transcript);
}

#[test]
fn run_counts_on_shard_servers_and_names_lost() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = world(folder.path());
    let mut servers = servers(&index, folder.path());
    let window = format!("corpus.max_diff_tokens={}", corver_demo::WINDOW);
    let counting = |source: &str| {
        let set = [
            source,
            &window,
            "corpus.mode=span",
            "corpus.remote.cache=false",
            "corpus.remote.retry_timeout_s=1",
        ];
        let set = set.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]);
        OTHER_INDEX.iter().map(|arg| (*arg).to_owned()).chain(set).collect::<Vec<_>>()
    };
    let run = |name: &str, steps: usize, source: &str| {
        let (out, set) = (run_dir(name), counting(source));
        let finished = short_run(&out, steps, &set.iter().map(String::as_str).collect::<Vec<_>>());
        (out, finished)
    };
    let rewards = |out: &Path| -> Vec<Value> {
        lines(&out.join("metrics.jsonl")).iter().map(|line| line["reward"].clone()).collect()
    };
    let (here, finished) = run("shards-here", 2, &format!("corpus.index={}", index.display()));
    finished.good();
    let (there, finished) = run("shards-there", 2, &list(&servers));
    finished.good();
    assert_eq!(rewards(&there), rewards(&here));
    let manifest = fs::read_to_string(there.join("manifest.json")).unwrap();
    assert!(servers.iter().all(|server| manifest.contains(&server.address)), "{manifest}");

    let out = run_dir("shards-gone");
    let sources = list(&servers);
    let (url, stopped) = std::thread::scope(|scope| {
        let set = counting(&sources);
        let run = {
            let out = &out;
            scope.spawn(move || {
                short_run(out, 60, &set.iter().map(String::as_str).collect::<Vec<_>>())
            })
        };
        while lines(&out.join("metrics.jsonl")).is_empty() && !run.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        servers[2].signal("-KILL");
        (servers[2].url.clone(), run.join().unwrap())
    });
    let (server, name) = url.split_once('#').unwrap();
    assert!(stopped.stderr.contains(server) && stopped.stderr.contains(name), "{stopped}");
    transcript.add_failure(&stopped.without_figures());
    let error = stopped.stderr.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(servers[..2].iter().all(|other| !error.contains(&other.address)), "{error}");
    insta::assert_snapshot!(transcript);
}

#[test]
fn index_part_is_verified_alone() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = world(folder.path());
    let part = folder.path().join("part");
    copy_shard(&index, 1, &part);
    let verify = |path: &Path, more: &[&str]| {
        host(&[&["index", "verify", "--index", path.to_str().unwrap()], more].concat())
    };
    verify(&index, &["--shards", "0-2"]).good();
    verify(&part, &["--shards", "1", "--full"]).good();
    transcript.add_failure(&verify(&part, &[]));
    transcript.add_failure(&verify(&part, &["--shards", "1-2"]));
    transcript.add_failure(&verify(&part, &["--shards", "0-3"]));
    transcript.add_usage_error(&verify(&part, &["--shards", "one"]));

    // A server says which part it has, and is not taken for another.
    let server =
        Server::start(&["--index", index.to_str().unwrap(), "--shards", "0-1"], "127.0.0.1:0");
    assert!(server.url.ends_with("/#index-0-1"), "{}", server.url);
    let other = server.url.replace("#index-0-1", "#index-0-2");
    transcript.add_failure(&host(&["index", "count", "the", "--index", &other]));
    insta::assert_snapshot!(transcript);
}
