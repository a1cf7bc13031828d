"""{{type}}: is the answer one of the golds, and nothing more?"""

from dataclasses import dataclass

from corver_sdk import Completion, Corpus, grade, response_rule, setting


@dataclass
class {{type}}:
    """Pays an answer that is a gold, whatever its capitals."""

    right: float = setting(2.0, "The reward of a right answer.")
    wrong: float = setting(-1.0, "The reward of any other, and of none.")

    def grade(self, completion: Completion, corpus: Corpus):
        answer = completion.answer.lower()
        if not answer:
            return grade(self.wrong, "NOT_ATTEMPTED")
        is_right = any(gold.strip().lower() == answer for gold in completion.golds)
        return grade(self.right, "GOOD") if is_right else grade(self.wrong, "BAD")


rule = response_rule({{type}}, name="{{name}}", version="0.1.0")
