"""{{type}}: an answer judge that accepts an answer if it equals a gold."""

from dataclasses import dataclass

from corver_sdk import Completion, Corpus, Grade, response_rule, setting


@dataclass
class {{type}}:
    """Rewards an answer that equals a gold, in any case."""

    right: float = setting(2.0, "Reward of a right answer.")
    wrong: float = setting(-1.0, "Reward of a wrong or missing answer.")

    def grade(self, completion: Completion, corpus: Corpus) -> Grade:
        # `completion.answer` is the whole text if there is no answer block.
        answer = (completion.answer_block() or "").lower()
        if not answer:
            return Grade(self.wrong, "NOT_ATTEMPTED")
        is_right = any(gold.strip().lower() == answer for gold in completion.golds)
        return Grade(self.right, "GOOD") if is_right else Grade(self.wrong, "BAD")


rule = response_rule({{type}}, name="{{name}}", version="0.1.0")
