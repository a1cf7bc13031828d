"""The README's lines for TRL, unchanged, with less training."""

import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from test_trl import DEMO, config, questions

import corver.trl

README = Path(__file__).parents[4] / "README.md"


class Readme(unittest.TestCase):
    def test_readme_lines_train_one_step(self):
        ways = README.read_text().split("## Three ways in")[1].split("\n## ")[0]
        (lines,) = re.findall(r"```python\n(.*?)```", ways, re.DOTALL)
        self.assertLessEqual(len(lines.splitlines()), 5)
        names = {"model": DEMO, "dataset": questions(8)}
        with tempfile.TemporaryDirectory() as folder, mock.patch("corver.trl.paper_config", lambda **_: config(folder, max_steps=1)):
            exec(lines, names)
        self.assertEqual(names["trainer"].state.global_step, 1)


if __name__ == "__main__":
    unittest.main()
