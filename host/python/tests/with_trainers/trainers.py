"""Helpers of the tests with trainers."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

import corver

#: The demo's policy: a tiny model in Hugging Face's layout, with tokenizer and chat template.
POLICY = corver.demo().policy
EXAMPLES = Path(__file__).parents[2] / "examples"


def need(package: str) -> None:
    """Skips the module where ``package`` is absent; under `make test-trainers` (CORVER_TRAINERS=1) that is a failure."""
    if importlib.util.find_spec(package) is not None:
        return
    message = f"{package} is not installed; `make test-trainers` installs it into .deps"
    if os.environ.get("CORVER_TRAINERS") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message, allow_module_level=True)


def corver_host() -> str:
    """Returns the command of the package."""
    installed = Path(sys.executable).with_name("corver-host")
    program = str(installed) if installed.is_file() else shutil.which("corver-host")
    assert program, "the package has no corver-host"
    return program


@contextmanager
def served() -> Iterator[str]:
    """Yields the address of a `corver-host serve` of the demo."""
    command = [corver_host(), "serve", "--plugin", "first.wasm", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = []
    try:
        for line in process.stdout:
            output.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                Thread(target=process.stdout.read, daemon=True).start()  # so that its output never blocks it
                yield address.group()
                return
        pytest.fail("corver-host serve has ended: " + "".join(output))
    finally:
        process.terminate()
        process.wait(timeout=30)


def dry_run(script: Path, out: Path) -> list[str]:
    """Returns the command line of an example, one argument per line; its questions are then in ``out``."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"CORVER_DRY_RUN": "1", "OUT": str(out), "PATH": path}
    done = subprocess.run([script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
