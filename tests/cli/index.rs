//! Indexes: built, counted in, served, verified.

use std::fs;
use std::path::PathBuf;

use crate::host::{
    OTHER_INDEX, Server, host, host_with_cache, host_with_token, run_dir, short_run, small_index,
    small_index_again,
};
use crate::transcript::Transcript;

#[test]
fn demo_index_is_built_for_several_processes() {
    let cache = tempfile::tempdir().unwrap();
    let count = || {
        let command = ["index", "count", "Mount Kogrix", "--index", "demo", "--json"];
        host_with_cache(cache.path(), &command).good().json()["count"].clone()
    };
    std::thread::scope(|scope| {
        let processes = [(); 4].map(|()| scope.spawn(count));
        let counts = processes.map(|process| process.join().unwrap());
        assert!(counts.iter().all(|other| *other == count()), "{counts:?}");
    });
}

/// A build of another version may have been killed, or one that was about to rename its folder.
#[test]
fn unfinished_demo_index_is_built_again() {
    let cache = tempfile::tempdir().unwrap();
    let info = || {
        let command = ["index", "info", "--index", "demo", "--json"];
        host_with_cache(cache.path(), &command).good().json()
    };
    let expected = info();
    let entries = fs::read_dir(cache.path().join("corver")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_index = |path: &PathBuf| path.is_dir() && path.to_str().unwrap().contains("demo-index-");
    let index = paths.find(is_index).unwrap();
    let unfinished = index.with_extension("unfinished");
    fs::rename(&index, &unfinished).unwrap();
    assert_eq!(info(), expected);

    fs::remove_dir_all(&index).unwrap();
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("corver-build.json"), "{}").unwrap();
    assert_eq!(info(), expected);
    assert!(!unfinished.exists());
}

#[test]
fn index_is_built_counted_and_verified() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let path = index.to_str().unwrap();
    let count =
        host(&["index", "count", "Paris AND France", "--index", path, "--json"]).good().json();
    assert_eq!(count["count"], 2);
    assert_eq!(
        host(&["index", "count", "Paris AND Peru", "--index", path, "--json"]).good().json()["count"],
        0
    );
    let shown =
        host(&["index", "count", "Paris AND France", "--index", path, "--show", "1"]).good();
    transcript.add(&shown);
    let shown =
        host(&["index", "count", "Paris AND France", "--index", path, "--show", "9", "--json"])
            .good()
            .json();
    let passages = shown["passages"].as_array().unwrap();
    assert_eq!(passages.len(), 1, "both matches are in it");
    assert_eq!(passages[0]["metadata"]["linenum"], 1);
    let marked =
        passages[0]["spans"].as_array().unwrap().iter().filter(|span| span["matched"] == true);
    assert!(
        marked.clone().count() >= 2
            && marked.clone().all(|span| span["text"] == "Paris" || span["text"] == "France")
    );
    let info = host(&["index", "info", "--index", path, "--json"]).good().json();
    assert_eq!(info["documents"], 3);
    host(&["index", "verify", "--index", path, "--full"]).good();
    // Neither a wrong option nor a file is a damaged index.
    let manifest = index.join("corver-index.json");
    let no_shards = ["--index", path, "--shards", "0-3"];
    for wrong in [&no_shards[..], &["--index", manifest.to_str().unwrap()]] {
        let refused = host(&[&["index", "verify"], wrong].concat()).found(1);
        assert!(refused.stderr.contains("error: verifying the index "), "{refused}");
        assert!(!refused.stderr.contains("is damaged"), "{refused}");
    }
    // The folder is taken now.
    transcript.add_failure(&small_index_again(&index));
    insta::assert_snapshot!(transcript);
}

/// Every document is far shorter than the window, so that the next one is always within it.
#[test]
fn short_documents_lose_no_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sentence = "{\"text\": \"The Heron waits by the Canal.\"}\n".repeat(100);
    fs::write(path("herons.jsonl"), sentence + "{\"text\": \"A Heron.\"}").unwrap();
    let tokenizer = format!("{}/../demo/assets/policy/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    for shards in ["1", "3", "7"] {
        let index = path(shards);
        let built = host(&[
            "index",
            "build",
            &path("herons.jsonl"),
            "--tokenizer",
            &tokenizer,
            "--out",
            &index,
            "--shards",
            shards,
        ])
        .good();
        assert!(built.stdout.contains("count in the mode exact"), "{built}");
        let count = |query: &str, more: &[&str]| {
            let command = ["index", "count", query, "--index", &index, "--json"];
            let counted = host(&[&command[..], more].concat()).good().json();
            (counted["count"].as_u64().unwrap(), counted["precision"].clone())
        };
        assert_eq!(count("Heron AND Canal", &[]), (100, "exact".into()));
        assert_eq!(count("Heron AND Canal", &["--mode", "span"]).0, 100);
        assert_eq!(count("Heron AND Canal", &["--max-clause-freq", "3"]), (100, "exact".into()));
        assert_eq!(count("Heron AND Heron", &[]).0, 101);
        assert_eq!(count("Heron OR Heron waits AND Heron", &[]).0, 101);
        let compatible = ["--mode", "compatible"];
        assert!(count("Heron AND Canal", &compatible).0 < 10);
        let sampled = count("Heron AND waits", &["--mode", "compatible", "--max-clause-freq", "3"]);
        assert_eq!(sampled.1, "estimate");
        let info = host(&["index", "info", "--index", &index, "--json"]).good().json();
        assert_eq!(info["document_tokens"]["share_below_window"], 1.0);
    }
    let both = ["--index", &path("1"), "--index", &path("3"), "--json"];
    let counted = host(&[&["index", "count", "Heron AND Canal"], &both[..]].concat()).good().json();
    assert_eq!(counted["count"], 200);

    // A pool retains the question, which the paper's mode drops.
    let question = r#"[{"question": "Where does the Heron wait?", "answers": ["Canal"]}]"#;
    fs::write(path("questions.json"), question).unwrap();
    let pool = |out: &str, more: &[&str]| {
        let (questions, index, out) = (path("questions.json"), path("1"), path(out));
        let command = ["data", "pool", &questions, "--index", &index, "--out", &out, "--json"];
        host(&[&command[..], more].concat())
    };
    assert_eq!(pool("exact", &[]).good().json()["retained"], 1);
    let empty = pool("compatible", &["--set", "corpus.mode=compatible"]).found(1);
    assert!(empty.stderr.contains("none of 1 questions is left"), "{empty}");
}

#[test]
fn index_of_another_program_is_adopted() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    // Another program writes neither of them.
    fs::remove_file(index.join("corver-index.json")).unwrap();
    fs::remove_file(index.join("tokenizer.json")).unwrap();
    let path = index.to_str().unwrap();
    let assets = format!("{}/../demo/assets", env!("CARGO_MANIFEST_DIR"));
    let [own, other] =
        ["policy", "extractor"].map(|model| format!("{assets}/{model}/tokenizer.json"));
    let count = ["index", "count", "Paris AND France", "--index", path, "--json"];
    transcript.add_failure(&host(&count));
    transcript.add_failure(&host(&[&count[..], &["--tokenizer", &other]].concat()));
    transcript.add_failure(&host(&["index", "adopt", path, "--tokenizer", &other]));
    transcript.add(&host(&["index", "adopt", path, "--tokenizer", &own]).good());
    assert_eq!(host(&count).good().json()["count"], 2);
    host(&["index", "verify", "--index", path, "--full"]).good();
    transcript.add_failure(&host(&["index", "adopt", path, "--tokenizer", &own]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn passages_are_made_and_searched() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let path = index.to_str().unwrap();
    let search = |more: &[&str]| {
        host(&[&["index", "search", "Is Paris (in) AND: France?", "--index", path], more].concat())
    };
    transcript.add_failure(&search(&[]));
    let made =
        host(&["index", "passages", "--index", path, "--words", "6", "--json"]).good().json();
    assert_eq!(
        (made["passages"]["documents"].clone(), made["passages"]["passages"].clone()),
        (3.into(), 4.into())
    );
    let found = search(&["-k", "2", "--json"]).good().json();
    let texts: Vec<&str> = found["passages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["France. All of France loves Paris.", "The city of Paris lies in"]);
    transcript.add(&search(&["-k", "1"]).good());
    search(&["--title", "Paris"]).good(); // nothing has a title
    // Passages of another index do not stand for these.
    fs::remove_dir_all(&index).unwrap();
    let articles = folder.path().join("articles.jsonl");
    small_index(&index);
    search(&[]).good();
    fs::remove_dir_all(&index).unwrap();
    fs::write(&articles, r#"{"text": "Lima.", "title": "Peru"}"#).unwrap();
    let tokenizer = format!("{}/../demo/assets/policy/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let articles = articles.to_str().unwrap();
    host(&["index", "build", articles, "--tokenizer", &tokenizer, "--out", path]).good();
    transcript.add_failure(&search(&[]));
    host(&["index", "passages", "--index", path]).good();
    let found = host(&["index", "search", "lima", "--index", path, "--title", "PERU", "--json"])
        .good()
        .json();
    assert_eq!(found["passages"][0]["title"], "Peru");
    insta::assert_snapshot!(transcript);
}

#[test]
fn counts_come_from_several_indexes_and_from_servers() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let [first, second, copy] = ["first", "second", "copy"].map(|name| folder.path().join(name));
    small_index(&first);
    small_index(&copy);
    let articles = folder.path().join("articles.jsonl");
    fs::write(
        &articles,
        fs::read_to_string(&articles).unwrap() + "\n{\"text\": \"Quito lies in Ecuador.\"}",
    )
    .unwrap();
    let tokenizer = format!("{}/../demo/assets/policy/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let [articles, first, second, copy] =
        [&articles, &first, &second, &copy].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", &tokenizer, "--out", second]).good();
    let both = ["--index", first, "--index", second];
    let count = |more: &[&str]| {
        host(&[&["index", "count", "Paris AND France", "--json"], &both[..], more].concat())
    };
    assert_eq!(count(&[]).good().json()["count"], 4);
    assert_eq!(count(&["--show", "9"]).good().json()["passages"].as_array().unwrap().len(), 2);

    transcript.add_failure(&count(&["--index", first]));
    transcript.add_failure(&count(&["--index", copy]));

    // No server listens there.
    let server = "http://127.0.0.1:1/#wiki";
    transcript.add_failure(&count(&["--index", server, "--show", "9"]));
    transcript.add_failure(&count(&["--index", "http://127.0.0.1:1/"]));
    let list = format!("corpus.index=[{first:?}, {server:?}]");
    let run = run_dir("no-server");
    let impatient = ["--set", &list, "--set", "corpus.remote.retry_timeout_s=0.2"];
    transcript.add_failure(&short_run(&run, 1, &[&OTHER_INDEX[..], &impatient].concat()));
    assert!(!run.exists(), "said before the run has a folder");
    insta::assert_snapshot!(transcript);
}

#[test]
fn token_reaches_server_without_leaking() {
    let mut transcript = Transcript::default();
    const SECRET: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let token_file = ["--token-file", file.to_str().unwrap()];
    let server =
        Server::start(&[&["--name", "demo-world"], &token_file[..]].concat(), "127.0.0.1:0");
    let count = ["index", "count", "Philadelphia AND Flyers", "--json", "--index", &server.url];
    transcript.add_failure(&host(&count));
    assert_eq!(host(&[&count[..], &token_file].concat()).good().json()["count"], 0);
    let logged = host_with_token(SECRET, &count).good();
    // A library that dumps what it sends would do so in lines of some bytes, as text in the last
    // column.
    let dumped: String =
        logged.stderr.lines().filter_map(|line| line.rsplit("  ").next()).collect();
    assert!(
        ![&logged.stderr, &logged.stdout, &dumped].iter().any(|text| text.contains(SECRET)),
        "{}",
        logged.stderr
    );
    transcript.add_failure(&host_with_token("two words", &count));
    transcript
        .add_failure(&host_with_token("short", &["index", "serve", "--listen", "127.0.0.1:0"]));
    let two = [&count[..], &["--index", "http://127.0.0.1:1/#wiki"]].concat();
    transcript.add_failure(&host_with_token(SECRET, &two));

    let run = run_dir("counted-with-a-token");
    let set = [
        format!("corpus.index={}", server.url),
        format!("corpus.max_diff_tokens={}", corver_demo::WINDOW),
        format!("corpus.remote.token_file={}", file.display()),
    ];
    let set = ["--set", &set[0], "--set", &set[1], "--set", &set[2]];
    short_run(&run, 1, &[&OTHER_INDEX[..], &set].concat()).good();
    let mut folders = vec![run];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                let is_there =
                    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
                assert!(!is_there, "{} holds the token", path.display());
            }
        }
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn sigterm_stops_index_server_cleanly() {
    assert!(Server::start(&[], "127.0.0.1:0").signal("-TERM").success());
}
