"""Tests of corver_glue, with stubs of the modules that componentize-py makes."""

import sys
import unittest
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import MagicMock

from corver_sdk import sentence_rule, setting


class Err(Exception):
    """An error of the contract."""


imports = MagicMock()
sys.modules["componentize_py_types"] = SimpleNamespace(Err=Err)
sys.modules["wit_world"] = MagicMock()
sys.modules["wit_world.imports"] = imports

import corver_glue  # noqa: E402


class TestReports(unittest.TestCase):
    def setUp(self):
        imports.diagnostics.report.reset_mock()

    def reported(self):
        imports.diagnostics.report.assert_called_once()
        [text] = imports.diagnostics.report.call_args.args
        return text

    def test_error_of_manifest_is_reported(self):
        @dataclass
        class Odd:
            """Has a setting that no JSON can be."""

            words: set = setting(None, "Words.")

        with self.assertRaises(TypeError):
            corver_glue.manifest(sentence_rule(Odd, "odd", "0.1.0"))
        self.assertIn("TypeError: a setting is bool, int", self.reported())

    def test_error_of_settings_is_reported_and_refusal_returned(self):
        @dataclass
        class Strict:
            """Refuses a floor below 0, and fails at one above 9."""

            floor: int = setting(0, "Counts without a reward.")

            def validate(self):
                if self.floor < 0:
                    raise ValueError("`floor` must be 0 or more")
                if self.floor > 9:
                    raise RuntimeError("my own words")

        rule = sentence_rule(Strict, "strict", "0.1.0")
        corver_glue.configure(rule, '{"floor": 3}')
        self.assertEqual(corver_glue.State.configured.floor, 3)
        for settings, message in [('{"floor": -1}', "`floor` must be 0 or more"), ('{"flor": 1}', "unknown field `flor`")]:
            with self.assertRaisesRegex(Err, message):
                corver_glue.configure(rule, settings)
        imports.diagnostics.report.assert_not_called()
        with self.assertRaisesRegex(RuntimeError, "my own words"):
            corver_glue.configure(rule, '{"floor": 10}')
        self.assertIn("RuntimeError: my own words", self.reported())


if __name__ == "__main__":
    unittest.main()
