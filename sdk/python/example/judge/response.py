"""A judge in Python that asks a chat model."""

from dataclasses import dataclass

from corver_sdk import Completion, Corpus, Prompt, Verifier, grade, response_rule


@dataclass
class Judge:
    """Asks a chat model whether the answer is right, in Python."""

    def grade(self, completion: Completion, corpus: Corpus):
        if not completion.answer:
            return grade(-1.0, "NOT_ATTEMPTED")
        known = " ".join(completion.evidence)
        title = ("title", completion.title or "")
        texts = [title, ("text", known), ("question", completion.question), ("answer", completion.answer)]
        prompt = Prompt.tagged("Is the answer right?", texts, max_tokens=4).system("Reply yes or no.")
        [reply] = corpus.chats([prompt])
        return grade(2.0, "GOOD") if reply == "yes" else grade(-1.0, "BAD", f"it says {reply}")


rule = response_rule(Judge, name="judge-python", version="0.1.0", asks=[Verifier.CHAT])
