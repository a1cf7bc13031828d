"""Entailed, in Python: a verdict by whether a passage of the corpus entails the sentence."""

from dataclasses import dataclass

from corver_sdk import Capability, Corpus, CreditKind, NliPair, Search, Sentence, Verdict, sentence_rule, setting


@dataclass
class Entailed:
    """Rewards the last token of a sentence if a passage entails it, in Python."""

    threshold: float = setting(0.5, "Lowest probability at which a passage entails the sentence.")
    reward: float = setting(1.0, "Reward of an entailed sentence; the others get its negative.")

    def score(self, sentence: Sentence, corpus: Corpus) -> Verdict:
        [passages] = corpus.passages([Search(sentence.text, k=3)])  # without a reply yet, the method ends here
        if not passages:
            return Verdict.abstain("no passage was found")
        entailments = corpus.entailments(NliPair(passage.text, sentence.text) for passage in passages)
        is_entailed = any(entailment.entail >= self.threshold for entailment in entailments)
        reward = self.reward if is_entailed else -self.reward
        return Verdict.token_rewards([(len(sentence.text) - 1, reward)])


rule = sentence_rule(
    Entailed,
    name="entailed-python",
    version="0.1.0",
    requires=[Capability.PASSAGES, Capability.NLI],
    credit=CreditKind.TOKEN_REWARDS,
)
