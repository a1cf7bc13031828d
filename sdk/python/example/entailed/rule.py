"""Entailed, in Python: does a passage of the corpus entail the sentence?"""

from dataclasses import dataclass

from corver_sdk import (
    Corpus,
    Pair,
    Search,
    Sentence,
    Verifier,
    abstain,
    label,
    points,
    sentence_rule,
    setting,
)


@dataclass
class Entailed:
    """Labels a sentence by whether a passage entails it, in Python."""

    threshold: float = setting(0.5, "From this probability on, a passage entails the sentence.")
    pay: bool = setting(False, "Pays the sentence's last token 1 or -1, in the place of a label.")

    def score(self, sentence: Sentence, corpus: Corpus):
        [found] = corpus.passages([Search(sentence.text, k=3)])  # the first time round, this asks the host and stops here
        if not found:
            return abstain("no passage was found")
        entailments = corpus.entailments(Pair(passage.text, sentence.text) for passage in found)
        is_entailed = any(entailment.entail >= self.threshold for entailment in entailments)
        if not self.pay:
            return label(is_entailed)
        return points([(len(sentence.text) - 1, 1.0 if is_entailed else -1.0)])


rule = sentence_rule(Entailed, name="entailed-python", version="0.1.0", asks=[Verifier.PASSAGES, Verifier.NLI])
