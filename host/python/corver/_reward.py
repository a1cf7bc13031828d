"""Reward function in TRL's shape, which other trainers share: lists of prompts and completions, and the dataset's columns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import CorverError, Score, Scorer


class CorverReward:
    """Reward function for TRL: the mean return of a completion over its tokens.

    scorer: the reward.
    tokenizer: the policy's tokenizer. Without it texts are scored, and the mean is over their characters.
    answers: column of the dataset with the golds, a list or one text that `;` separates. None if there is none: the answer
        reward is then 0.
    question: column of the dataset with the question. Without it, the last user turn of the prompt.
    applies_signs: the trainer applies `Score.advantage_signs`, as CorverGRPOTrainer does. Without it, a rule that sets signs is an
        error: the number for a completion leaves them out.

    `scores` has the scores of the last call, and `completion_ids` its token ids.
    """

    __name__ = "corver"  # in the names of TRL's metrics

    def __init__(
        self,
        scorer: Scorer,
        tokenizer: Any = None,
        *,
        answers: str | None = "answers",
        question: str | None = None,
        applies_signs: bool = False,
    ) -> None:
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.answers = answers
        self.question = question
        self.applies_signs = applies_signs
        self.scores: list[Score] = []
        self.completion_ids: list[list[int]] = []

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: Any = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float]:
        for completion in completions:
            _check_roles(completion)
        questions = column(columns, self.question, "question") or [last_user_turn(prompt) for prompt in prompts]
        answers = column(columns, self.answers, "answers")
        verification = {"titles": columns.get("title"), "evidence": columns.get("evidence")}
        started = time.perf_counter()
        if self.tokenizer is None:
            texts = [_text(completion) for completion in completions]
            self.scores = self.scorer.score(texts, questions, answers, **verification)
        else:
            self.scores = self.scorer.score(
                questions=questions, answers=answers, completion_ids=completion_ids, tokenizer=self.tokenizer, **verification
            )
        self.completion_ids = [list(ids) for ids in completion_ids or []]
        if not self.applies_signs and any(s.credit == "advantage_sign" for score in self.scores for s in score.sentences):
            raise CorverError(
                "the rule sets signs of advantages, and a reward function cannot apply them; use "
                "CorverGRPOTrainer"
            )
        if log_metric is not None:
            log_metric("corver/seconds", time.perf_counter() - started)
            for name, value in _metrics(self.scores).items():
                log_metric(name, value)
        if log_extra is not None:
            log_extra("corver_judge", [score.judge.label for score in self.scores])
            log_extra("corver_format", [score.format.label for score in self.scores])
            log_extra("corver_sentences", [_sentence_lines(score) for score in self.scores])
        return [score.reward for score in self.scores]


def column(columns: Mapping[str, Any], name: str | None, argument: str) -> Any:
    """Returns a column of the dataset; None if it has no name. ``argument`` names the column in an error."""
    if name is None:
        return None
    if name not in columns:
        without = ", or None where there are no golds; for corver.reward it is CORVER_ANSWERS" if argument == "answers" else ""
        raise ValueError(f"the dataset has no column {name!r}; {argument}=… names the right one{without}")
    return columns[name]


def last_user_turn(prompt: Any) -> str:
    """Returns the last user turn of a conversation; another prompt unchanged."""
    if isinstance(prompt, str):
        return prompt
    turns = [content_text(message) for message in prompt if message["role"] == "user"]
    return turns[-1] if turns else ""


def _check_roles(completion: Any) -> None:
    """Raises CorverError for a message that the policy did not write, such as the result of a tool."""
    for message in [] if isinstance(completion, str) else completion:
        role = message.get("role", "assistant")
        if role != "assistant":
            raise CorverError(
                f"a completion has a message of the role {role!r}, which the policy did not write; its text would receive a reward. "
                "Train with one reply per question, without tools"
            )


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    texts = []
    for message in completion:
        reasoning = message.get("reasoning_content") or message.get("thinking")  # LFM2.5's name
        texts.append(join_reasoning(reasoning, content_text(message)))
    return "".join(texts)


def join_reasoning(reasoning: str | None, content: str) -> str:
    """Returns the text of a message whose reasoning the trainer separated from the content: it is in a think block again.

    Without content the block stays open, since the policy was cut off in it.
    """
    if not reasoning:
        return content
    return f"<think>{reasoning}</think>{content}" if content else f"<think>{reasoning}"


def content_text(message: Mapping[str, Any]) -> str:
    """Returns the text of a message, whose content may be a list of parts."""
    content = message["content"] or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _metrics(scores: list[Score]) -> dict[str, float]:
    """Returns metrics under the names that a run of the host logs."""
    sentences = [sentence for score in scores for sentence in score.sentences]
    counts = [sentence.count for sentence in sentences if sentence.count is not None]
    metrics = {f"corver/{part}": _mean([score.return_parts[part] for score in scores]) for part in ("judge", "format")}
    metrics |= {
        "corver/sentence_return": _mean([score.return_parts["sentences"] for score in scores]),
        "corver/alignment_rate": _mean([score.alignment_rate for score in scores]),
        "corver/fallback_rate": _mean([float(score.fallback) for score in scores]),
        "corver/sentences": float(len(sentences)),
        "corver/counted_rate": len(counts) / max(len(sentences), 1),
        "corver/lookups": float(sum(len(sentence.lookups) for sentence in sentences)),
    }
    if counts:
        metrics["corver/supported_rate"] = sum(count > 0 for count in counts) / len(counts)
    return metrics


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _sentence_lines(score: Score) -> str:
    """Returns a line for each sentence: its reward and its text."""
    rows = [("" if s.reward is None else f"{s.reward:+.2f}", s.text) for s in score.sentences]
    return "\n".join(f"{reward:>5} {text}" for reward, text in rows)
