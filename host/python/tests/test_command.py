"""The command of the package: everything but training, from the wheel alone."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import corver

PACKAGE = Path(corver.__file__).parent
COMMAND = Path(sys.executable).parent / "corver-host"


def host(*args, code=0, **options):
    """Runs the command, and returns its output; it must end with `code`."""
    run = subprocess.run([COMMAND, *args], capture_output=True, text=True, **options)
    assert run.returncode == code, f"{args}: {run.returncode}\n{run.stdout}\n{run.stderr}"
    return run.stdout if code == 0 else run.stderr


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_doctor_finds_packaged_runtime_and_rules(self):
        findings = {finding["what"]: finding for finding in json.loads(host("doctor", "--json"))}
        self.assertIn(str(PACKAGE / "lib/libonnxruntime.so"), findings["ONNX Runtime"]["found"])
        self.assertTrue(findings["rules"]["good"])
        self.assertIn(str(PACKAGE / "plugins/dist"), host("plugin", "list", "--json", cwd=self.folder))

    def test_train_reports_missing_libtorch(self):
        self.assertIn("built without libtorch", host("train", code=1, cwd=self.folder))

    def test_built_index_counts_and_scores(self):
        world = self.folder / "world"
        host("demo", "world", world)
        tokenizer = Path(corver.demo().policy) / "tokenizer.json"
        host("index", "build", world / "articles.jsonl", "--tokenizer", tokenizer, "--out", self.folder / "index")
        counted = json.loads(host("index", "count", "Old Riavuck", "--index", self.folder / "index", "--json"))
        self.assertGreater(counted["count"], 10)

        with open(world / "articles.jsonl") as articles:
            sentence = json.loads(next(articles))["text"].split(". ")[1] + "."  # the first one only says what the article is about
        extractor = corver.demo().extractor
        scorer = corver.Scorer("first.wasm", self.folder / "index", extractor, settings={"corpus.max_diff_tokens": 64})
        completion = f"<think>{sentence}</think><answer>It is.</answer>"
        (score,) = scorer.score([completion])
        self.assertTrue(any(sentence.triplets for sentence in score.sentences), score.sentences)
        file = self.folder / "one.jsonl"
        file.write_text(json.dumps({"question": "", "answers": [], "completion": completion}))
        parts = ("--index", self.folder / "index", "--extractor", extractor, "--set", "corpus.max_diff_tokens=64")
        printed = host("score", file, "--json", *parts)
        self.assertEqual(json.loads(printed), score.to_dict())

    @unittest.skipUnless(shutil.which("cargo"), "cargo compiles rules in Rust")
    def test_new_rust_rule_builds_and_loads(self):
        rule = self.folder / "my-rule"
        host("plugin", "new", rule)
        manifest = (rule / "Cargo.toml").read_text()
        self.assertIn(str(PACKAGE / "sdk"), manifest)
        host("plugin", "build", rule)
        host("plugin", "check", rule / "my-rule.wasm")
        self.assertFalse((PACKAGE / "plugins/target").exists(), "nothing is compiled into the package")
        self.assertEqual(corver.Scorer(plugin=rule / "my-rule.wasm", index="demo").rule, "my-rule")

    def test_new_python_rule_finds_sdk(self):
        printed = host("plugin", "new", "--lang", "python", self.folder / "my-rule")
        self.assertIn(str(PACKAGE / "sdk/python"), printed)
        tests = [sys.executable, "-m", "unittest", "discover", "--quiet", self.folder / "my-rule"]
        subprocess.run(tests, check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE / "sdk/python")}, capture_output=True)


if __name__ == "__main__":
    unittest.main()
