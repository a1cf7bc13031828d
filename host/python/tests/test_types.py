"""The type stubs match the compiled module; mypy checks them if it is installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import corver

WELL_TYPED = """
from pathlib import Path
import corver

scorer = corver.Scorer("first.wasm", Path("index"), extractor="demo", settings={"reward.lambda_corver": 0.5})
scores = scorer.score(completion_ids=[[1, 2]], tokenizer="folder", answers=[["a"], "b; c", None])
rewards: list[float] = [score.reward for score in scores]
returns: list[list[float]] = [score.returns or [] for score in scores]
reward, label, note = scores[0].judge
first: tuple[int, int] | None = scores[0].sentences[0].tokens
advantages: list[list[float]] = corver.advantages(returns, group_size=2)
"""
ILL_TYPED = """
from types import MappingProxyType
import corver

corver.Scorer(pluggin="first.wasm")
corver.Scorer(settings=MappingProxyType({"reward.lambda_corver": 0.5}))
corver.Scorer().score(completions=3)
text: str = corver.Scorer().score(["a"])[0].reward
"""


def mypy():
    """Returns the command that starts mypy, with this package on its path."""
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m"]
    program = shutil.which("mypy")
    return program and [Path(program).read_text().splitlines()[0].removeprefix("#!"), "-m"]


@unittest.skipUnless(mypy(), "mypy is not installed")
class Types(unittest.TestCase):
    def run_mypy(self, module, *args):
        environment = {**os.environ, "MYPYPATH": "", "PYTHONPATH": str(Path(corver.__file__).parents[1])}
        run = subprocess.run([*mypy(), module, *args], capture_output=True, text=True, env=environment)
        return run.returncode, run.stdout + run.stderr

    def test_type_stubs_match_native_module(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as allowed:
            allowed.write("corver._native.__all__\n")  # added by PyO3
            allowed.flush()
            code, output = self.run_mypy("mypy.stubtest", "corver._native", "--allowlist", allowed.name)
        self.assertEqual(code, 0, output)

    def test_mypy_checks_programs_against_stubs(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text, errors in [("well", WELL_TYPED, 0), ("ill", ILL_TYPED, 4)]:
                file = Path(folder, f"{name}.py")
                file.write_text(text)
                _, output = self.run_mypy("mypy", "--strict", str(file))
                self.assertEqual(output.count("error:"), errors, output)


if __name__ == "__main__":
    unittest.main()
