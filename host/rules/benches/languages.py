"""Times the same rule in several languages with `corver-host plugin bench`: languages.py CORVER_HOST OUT.json."""

import json
import subprocess
import sys
from pathlib import Path

RULES = {"Rust": "plugins/dist/first.wasm", "Python": "sdk/python/example/first-python.wasm", "JavaScript": "sdk/js/example/first-js.wasm"}


def main(host, out):
    result = {}
    for language, rule in RULES.items():
        output = subprocess.check_output([host, "plugin", "bench", rule, "--json"])
        result[language] = json.loads(output) | {"bytes": Path(rule).stat().st_size}
    Path(out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


main(*sys.argv[1:])
