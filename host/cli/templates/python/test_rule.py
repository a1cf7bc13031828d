"""The rule's tests, without the host."""

import unittest

from corver_testing import counts, run, sentence
from rule import rule

PARIS = sentence("Paris is in Peru.", [("Paris", "is in", "Peru")])


class {{type}}Test(unittest.TestCase):
    def test_unattested_triplet_is_penalised(self):
        scored = run(rule, PARIS, counts({"Paris AND Peru": 0}))
        self.assertEqual((scored.reward, scored.count, scored.triplet), (-0.3, 0, 0))

    def test_count_at_noise_floor_is_penalised(self):
        settings = {"noise_floor": 5}
        self.assertEqual(run(rule, PARIS, counts({"Paris AND Peru": 5}), settings).reward, -0.3)
        self.assertEqual(run(rule, PARIS, counts({"Paris AND Peru": 6}), settings).reward, 0.1)

    def test_abstains_without_countable_triplet(self):
        self.assertIsNone(run(rule, sentence("Well.", []), counts({})).reward)
        self.assertIsNone(run(rule, PARIS, counts({"Paris AND Peru": None})).reward)

    def test_rejects_negative_noise_floor(self):
        with self.assertRaisesRegex(ValueError, "`noise_floor` must be 0 or more; got -2"):
            rule.configure({"noise_floor": -2})

    def test_rejects_unknown_setting(self):
        with self.assertRaisesRegex(ValueError, "unknown field `floor`"):
            rule.configure({"floor": 5})


if __name__ == "__main__":
    unittest.main()
