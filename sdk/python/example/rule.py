"""First, in Python: how often do subject and object of the sentence's first fact occur together in the corpus?"""

from dataclasses import dataclass, field

from corver_sdk import Corpus, Sentence, Tiers, abstain, sentence_rule, valid_triplets, verdict, word_query


@dataclass
class First:
    """Pays a sentence by the count of its first valid triplet, in Python."""

    tiers: Tiers = field(default_factory=Tiers)

    def score(self, sentence: Sentence, corpus: Corpus):
        valid = valid_triplets(sentence)
        if not valid:
            return abstain("no valid triplet")
        place, triplet = valid[0]
        query = word_query(triplet, enough=self.tiers.top())
        if query is None:
            return abstain("fewer than two content words")
        count = corpus.count(query)  # the first time round, this asks the host and stops here
        return verdict(self.tiers.reward(count), triplet=place, count=count)


rule = sentence_rule(First, name="first-python", version="0.1.0")
