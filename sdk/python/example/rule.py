"""First, in Python: a reward for the number of times that head and tail of the first fact occur together in the corpus."""

from dataclasses import dataclass, field

from corver_sdk import Corpus, Sentence, Tiers, Verdict, sentence_rule, valid_triplets, word_query


@dataclass
class First:
    """Rewards a sentence by the count of its first valid triplet, in Python."""

    tiers: Tiers = field(default_factory=Tiers)

    def score(self, sentence: Sentence, corpus: Corpus) -> Verdict:
        valid = valid_triplets(sentence)
        if not valid:
            return Verdict.abstain("no valid triplet")
        index, triplet = valid[0]
        query = word_query(triplet, limit=self.tiers.top())
        if query is None:
            return Verdict.abstain("fewer than two content words")
        count = corpus.count(query)  # without a reply yet, the method ends here
        return Verdict(self.tiers.reward(count), triplet=index, count=count)


rule = sentence_rule(First, name="first-python", version="0.1.0")
