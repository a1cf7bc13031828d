import unittest
from types import SimpleNamespace

from corver_sdk import Ask, Batch, Count, Query, Sentence, Triplet, Verdict, sentences_of


def sentence(completion: int, index: int) -> Sentence:
    return Sentence(completion, index, "It is so.", "think", [])


class TestQuery(unittest.TestCase):
    def test_a_query_crosses_as_one_text(self):
        self.assertEqual(Query([["red\nfox", "the\tden"], ["Rome"]]).text(), "red fox\tthe den\nRome")


class TestBatch(unittest.TestCase):
    def test_sentences_are_cut_out_of_one_text(self):
        place = lambda index, num: SimpleNamespace(completion=4, index=index, section="think", num_triplets=num)
        batch = SimpleNamespace(
            sentences=[place(0, 1), place(1, 0)], text="🎻 in Größe.🎻Größe\ufeff", lengths=[16, 4, 0, 7, 3]
        )
        triplets = [Triplet("🎻", "", "Größe")]
        expected = [Sentence(4, 0, "🎻 in Größe.", "think", triplets), Sentence(4, 1, "\ufeff", "think", [])]
        self.assertEqual(sentences_of(batch), expected)
        batch.lengths.pop()
        self.assertRaisesRegex(AssertionError, "the contract: 27 bytes of text, not 30", lambda: sentences_of(batch))

    def test_a_completion_stays_as_long_as_a_sentence_of_it_asks(self):
        def judge(sentence, counts):
            # Sentence 1 of completion 1 asks twice, both completions 0 once, for two counts.
            if sentence.index == 1 and len(counts) < 2:
                return Ask([Query([["a"]])])
            if sentence.completion == 0 and not counts:
                return Ask([Query([["b"]]), Query([["c"]])])
            return Verdict(sum(count.occurrences for count in counts))

        batch = Batch([sentence(0, 0), sentence(1, 0), sentence(1, 1), sentence(0, 0)], judge)
        shown = lambda: [len(said.queries) if isinstance(said, Ask) else said.reward for said in batch.judge()]
        self.assertEqual(shown(), [2, 0, 1, 2])
        batch.answer([Count(10), Count(20), Count(30), Count(40), Count(50)])
        self.assertEqual(shown(), [30, 0, 1, 90])
        batch.answer([Count(60)])
        self.assertEqual(shown(), [0, 90])


if __name__ == "__main__":
    unittest.main()
