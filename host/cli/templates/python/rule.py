"""{{type}}: a reward for sentences whose first fact the corpus attests."""

from dataclasses import dataclass

from corver_sdk import Corpus, Sentence, Verdict, sentence_rule, setting, valid_triplets, word_query


@dataclass
class {{type}}:
    """Rewards a sentence if the corpus attests its first fact."""

    noise_floor: int = setting(0, "Counts up to this number are noise, occurrences.")
    attested: float = setting(0.1, "Reward of an attested fact.")
    unattested: float = setting(-0.3, "Reward of an unattested fact.")

    def score(self, sentence: Sentence, corpus: Corpus) -> Verdict:
        valid = valid_triplets(sentence)
        if not valid:
            return Verdict.abstain("no valid triplet")
        index, triplet = valid[0]
        query = word_query(triplet, limit=self.noise_floor + 1)
        if query is None:
            return Verdict.abstain("fewer than two content words")
        count = corpus.count(query)  # without a reply yet, the method ends here
        if count is None:
            return Verdict.abstain("the corpus cannot count this")
        reward = self.attested if count > self.noise_floor else self.unattested
        return Verdict(reward, triplet=index, count=count)

    def validate(self) -> None:
        if self.noise_floor < 0:
            raise ValueError(f"`noise_floor` must be 0 or more; got {self.noise_floor}")


rule = sentence_rule({{type}}, name="{{name}}", version="0.1.0")
