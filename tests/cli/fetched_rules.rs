//! Rules that are pinned by their hash, and rules that come from another machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::host::{host, host_with_cache};

fn shipped(rule: &str) -> PathBuf {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist");
    dist.join(rule).with_extension("wasm").canonicalize().unwrap()
}

fn hash(rule: &str) -> String {
    let check = host(&["plugin", "check", rule, "--json"]).good().json();
    check["blake3"].as_str().unwrap().to_owned()
}

/// Debian's registry on a free port, for as long as the value lives.
struct Registry {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = json!({
            "version": 0.1, "http": {"addr": address}, "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": folder.path().join("images")}},
        });
        let path = folder.path().join("config.yml");
        fs::write(&path, config.to_string()).unwrap(); // JSON is YAML
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is there: host/setup/registry.sh installs it");
        let registry = Self { process, address, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&registry.address).is_err() {
            assert!(Instant::now() < deadline, "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        registry
    }

    /// Pushes files as layers of the image `rules/NAME:1.0`, each `MEDIA_TYPE=FILE`. Returns the
    /// digest of the first.
    fn push(&self, name: &str, layers: &[String]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cli/push_rule.py");
        let mut push = Command::new("python3");
        push.arg(script).args([&self.address, &format!("rules/{name}"), "1.0"]).args(layers);
        let run = push.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn pinned_rule_must_have_the_hash() {
    let (first, min) = (hash("first"), hash("min"));
    let shown = host(&["plugin", "check", &format!("first@blake3:{first}"), "--json"]).good();
    assert_eq!(shown.json()["name"], "first");
    let refused = host(&["plugin", "check", &format!("first@blake3:{min}")]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("is another file: its BLAKE3 hash is"), "{refused}");
    // With a weight, as a judge, and as one of several.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, r#"{"question": "Who?", "answers": ["Me"], "completion": "x"}"#).unwrap();
    let score =
        |arguments: &[&str]| host(&[&["score", file.to_str().unwrap()], arguments].concat());
    let weighted = format!("first.wasm@blake3:{first}:0.5");
    score(&["--plugin", &weighted, "--plugin", &format!("min@blake3:{min}")]).good();
    for wrong in [
        ["--plugin", &format!("first.wasm@blake3:{min}:0.5")],
        ["--judge", &format!("token-f1@blake3:{min}")],
    ] {
        let refused = score(&wrong);
        assert!(refused.stderr.contains("is another file"), "{refused}");
    }
}

#[test]
fn rule_is_fetched_from_registry_and_web_server_once() {
    let (mut registry, min) = (Registry::start(), hash("min"));
    let layer = format!("application/wasm={}", shipped("min").display());
    let digest = registry.push("min", std::slice::from_ref(&layer));
    registry.push("two", &[layer.clone(), layer.clone()]);
    registry.push("none", &[layer.replace("application/wasm", "text/plain")]);

    let address = registry.address.clone();
    let image = format!("oci://{address}/rules/min:1.0@blake3:{min}");
    let file = format!("http://{address}/v2/rules/min/blobs/{digest}@blake3:{min}");
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    let check = |plugin: &str| host_with_cache(cache, &["plugin", "check", plugin, "--json"]);
    for (plugin, name) in [(&image, "min.wasm"), (&file, &format!("{digest}.wasm"))] {
        let shown = check(plugin).good().json();
        assert_eq!((&shown["name"], &shown["blake3"]), (&json!("min"), &json!(min)));
        let path = cache.join("corver/plugins").join(&min).join(name);
        assert_eq!(shown["path"], json!(path));
        assert_eq!(fs::read(path).unwrap(), fs::read(shipped("min")).unwrap());
    }
    let other = "0".repeat(64);
    for (plugin, problem) in [
        (format!("oci://{address}/rules/min:1.0"), "needs the hash of the file"),
        (format!("oci://{address}/rules/min:1.0@blake3:{other}"), "has another file"),
        (format!("oci://{address}/rules/min:2.0@blake3:{min}"), "does not serve it"),
        (format!("oci://{address}/rules/two:1.0@blake3:{min}"), "has 2 layers of type"),
        (format!("oci://{address}/rules/none:1.0@blake3:{min}"), "has 0 layers of type"),
        (format!("oci://rules/min:1.0@blake3:{min}"), "names no registry"),
        (format!("oci://{address}/Rules/min@blake3:{min}"), "name of the image is invalid"),
        (format!("http://{address}/min.wasm@blake3:{min}"), "status 404"),
    ] {
        // The cache already has the file of this hash, under its own name.
        let refused = host_with_cache(&cache.join("empty"), &["plugin", "check", &plugin]);
        assert_ne!(refused.code, Some(0), "{refused}");
        assert!(refused.stderr.contains(problem), "{problem}: {refused}");
    }
    // Without the registry, the cache has the rule. A damaged copy is fetched again, or named.
    let cached = cache.join("corver/plugins").join(&min).join("min.wasm");
    fs::write(&cached, "damaged").unwrap();
    check(&image).good();
    registry.stop();
    check(&image).good();
    fs::write(&cached, "damaged").unwrap();
    let refused = check(&image);
    assert!(refused.stderr.contains("does not serve it"), "{refused}");
}
