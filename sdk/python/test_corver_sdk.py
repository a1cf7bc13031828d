import unittest
from dataclasses import dataclass

from corver_sdk import Ask, Batch, CorpusSize, Count, Query, Section, Sentence, abstain, sentence_rule, setting, verdict
from corver_testing import run, sentence


def said(text: str) -> Sentence:
    return Sentence(text, Section.BODY, [])


def shown(outcomes: list) -> list:
    """Rewards, and how many queries are asked."""
    return [[f"{len(o.queries)} asked" if isinstance(o, Ask) else o.reward for o in completion] for completion in outcomes]


class TestBatch(unittest.TestCase):
    def test_a_completion_stays_as_long_as_a_sentence_of_it_asks(self):
        class Rule:
            def score(self, sentence, corpus):
                if sentence.text == "twice":
                    return verdict(sum(corpus.count(Query([[word]])) for word in "ab"))
                return verdict(sum(corpus.count_all([Query([["c"]])] * len(sentence.text))))

        batch = Batch(Rule(), [[said("cc")], [], [said(""), said("twice")], [said("cc")]], CorpusSize())
        self.assertEqual(shown(batch.judge()), [["2 asked"], [], [0, "1 asked"], ["2 asked"]])
        batch.reply([Count(10), Count(20), Count(30), Count(40), Count(50)])
        self.assertEqual(shown(batch.judge()), [[30], [0, "1 asked"], [90]])
        batch.reply([Count(60)])
        self.assertEqual(shown(batch.judge()), [[0, 90]])


class TestRule(unittest.TestCase):
    def test_the_corpus_tells_its_size(self):
        @dataclass
        class Size:
            """Pays the mean length of a document."""

            def score(self, sentence, corpus):
                return abstain("unknown") if corpus.tokens is None else verdict(corpus.tokens / corpus.documents)

        rule = sentence_rule(Size, "size", "0.1.0")
        self.assertEqual(rule.summary, "Pays the mean length of a document.")
        self.assertEqual(run(rule, sentence("Well.", []), {}, size=CorpusSize(300, 4)).reward, 75)
        self.assertEqual(run(rule, sentence("Well.", []), {}).note, "unknown")

    def test_an_error_names_the_setting(self):
        @dataclass
        class Floor:
            floors: list[int] = setting([0], "Counts that earn nothing.")

        rule = sentence_rule(Floor, "floor", "0.1.0")
        self.assertEqual(rule.schema()["properties"]["floors"]["description"], "Counts that earn nothing.")
        for settings, message in [
            ([], "settings: expected a JSON object, got []"),
            ({"flor": []}, "flor: unknown field `flor`, expected one of floors"),
            ({"floors": 1}, "floors: expected a list, got 1"),
            ({"floors": [1, "x"]}, "floors[1]: expected integer, got 'x'"),
        ]:
            with self.assertRaises(ValueError) as raised:
                rule.configure(settings)
            self.assertEqual(str(raised.exception), message)


if __name__ == "__main__":
    unittest.main()
