"""An answer judge in Python that uses a chat model."""

from dataclasses import dataclass

from corver_sdk import Capability, ChatPrompt, Completion, Corpus, Grade, response_rule


@dataclass
class Judge:
    """Rewards an answer that a chat model accepts, in Python."""

    def grade(self, completion: Completion, corpus: Corpus) -> Grade:
        answer = completion.answer_block()
        if not answer:
            return Grade(-1.0, "NOT_ATTEMPTED")
        evidence = " ".join(completion.evidence)
        title = ("title", completion.title or "")
        texts = [title, ("text", evidence), ("question", completion.question), ("answer", answer)]
        prompt = ChatPrompt.tagged("Is the answer right?", texts, max_tokens=4).system("Reply yes or no.")
        [reply] = corpus.chats([prompt])
        return Grade(2.0, "GOOD") if reply == "yes" else Grade(-1.0, "BAD", f"it says {reply}")


rule = response_rule(Judge, name="judge-python", version="0.1.0", requires=[Capability.CHAT])
