"""{{type}}: does the corpus attest the sentence's first fact?"""

from dataclasses import dataclass

from corver_sdk import Corpus, Sentence, abstain, sentence_rule, setting, valid_triplets, verdict, word_query


@dataclass
class {{type}}:
    """Pays a sentence whose first fact the corpus attests."""

    noise_floor: int = setting(0, "Counts up to this one are noise, in occurrences.")
    attested: float = setting(0.1, "The reward of a fact that is attested.")
    unattested: float = setting(-0.3, "The reward of a fact that is not.")

    def score(self, sentence: Sentence, corpus: Corpus):
        valid = valid_triplets(sentence)
        if not valid:
            return abstain("no valid triplet")
        place, triplet = valid[0]
        query = word_query(triplet, enough=self.noise_floor + 1)
        if query is None:
            return abstain("fewer than two content words")
        count = corpus.count(query)  # the first time round, this asks the host and stops here
        if count is None:
            return abstain("the corpus cannot count this")
        return verdict(self.attested if count > self.noise_floor else self.unattested, triplet=place, count=count)


rule = sentence_rule({{type}}, name="{{name}}", version="0.1.0")
