"""CorVer in verifiers: named rewards of a trace, and the return of each of its tokens.

verifiers 0.4 imports the reward by name, in the TOML of any taskset, and finds its settings in the environment (`corver.reward`)::

    [env.taskset.task.rewards]
    corver = { fn = "corver.verifiers:reward" }

The environment package ``corver_qa`` (host/python/environments) has questions too. For verifiers 0.1.9, which Tinker's cookbook and
Atropos use, `rubric` returns a ``Rubric``. This module does not import verifiers before that.
"""

from __future__ import annotations

import asyncio
from typing import Any

from corver import _environment, _report
from corver._batching import BatchQueue, Completion
from corver._golds import parse_golds
from corver._opened import batch_queue
from corver._reward import content_text, join_reasoning, last_user_turn

__all__ = ["INFO", "REWARDS", "reward", "rubric"]

#: Key of `Trace.info`, and of the state of a rollout in verifiers 0.1.9.
INFO = "corver"
_PARTS = ("judge", "format", "sentences")
#: Names of the rewards in a trace.
REWARDS = tuple(f"corver/{part}" for part in _PARTS)


async def reward(task: Any, trace: Any, config: str | None = None, tokenizer: str | None = None) -> dict[str, float]:
    """Returns ``corver/judge``, ``corver/format`` and ``corver/sentences`` of the trace's reply, which add up to its reward.

    ``config`` are settings files; CORVER_CONFIG if it is None. ``tokenizer`` is the tokenizer.json of the policy or its folder;
    CORVER_TOKENIZER if it is None. If one is set and the trace has the token ids of its only reply, these are scored. The golds are
    the field of the task that CORVER_ANSWERS names.

    `Trace.info["corver"]` then has ``sentences`` with their counts, and ``returns``, one for each sampled token; None if a text was
    scored.
    """
    queue = await asyncio.to_thread(batch_queue, _environment.scorer_arguments(config))
    question = task.prompt if isinstance(task.prompt, str) else last_user_turn(_messages(task.prompt or []))
    token_ids, folder = _sampled_ids(trace), tokenizer or _environment.tokenizer()
    if token_ids is not None and folder is not None:
        completion = Completion(question, _golds(task), token_ids=token_ids, tokenizer=folder)
    else:
        completion = Completion(question, _golds(task), text=_reply(trace))
    score = await asyncio.wrap_future(queue.submit(completion))
    result = score.to_dict()
    _report.refuse_signs(result, "verifiers")
    trace.info[INFO] = {"sentences": _report.sentences(result), "returns": score.returns}
    return {name: float(result["return_parts"][part]) for name, part in zip(REWARDS, _PARTS, strict=True)}


def rubric(**scorer: Any) -> Any:
    """Returns a ``Rubric`` of verifiers 0.1.9: the reward ``corver``, and its parts with weight 0.

    ``scorer`` are the arguments of `corver.Scorer`. The golds are the rollout's ``answer``; ``state["corver"]`` has the sentences with
    their counts. verifiers replaces the reward of a completion that cannot be scored by 0, and logs the error.
    """
    try:
        from verifiers import Rubric
    except ImportError as error:
        raise ImportError("corver.verifiers.rubric needs verifiers 0.1.9: pip install 'verifiers==0.1.9.post2'") from error
    queue = batch_queue(scorer)

    async def corver(prompt: Any, completion: Any, answer: Any, state: Any) -> float:
        return await _rollout_reward(queue, prompt, completion, answer, state)

    def part(name: str) -> Any:
        def value(state: Any) -> float:
            return state[INFO]["parts"][name]

        value.__name__ = f"corver_{name}"
        return value

    return Rubric(funcs=[corver, *(part(name) for name in _PARTS)], weights=[1.0, 0.0, 0.0, 0.0])


async def _rollout_reward(queue: BatchQueue, prompt: Any, completion: Any, answer: Any, state: Any) -> float:
    text = completion if isinstance(completion, str) else content_text(completion[-1]) if completion else ""
    request = Completion(question=last_user_turn(prompt), golds=parse_golds(answer), text=text)
    score = await asyncio.wrap_future(queue.submit(request))
    result = score.to_dict()
    _report.refuse_signs(result, "verifiers")
    state[INFO] = {"sentences": _report.sentences(result), "parts": result["return_parts"]}
    return score.reward


def _golds(task: Any) -> list[str]:
    field = _environment.answers_column()
    if field is None:
        return []
    if not hasattr(task, field):
        raise ValueError(f"the task has no field {field!r}; CORVER_ANSWERS names the right one, or is empty if there are no golds")
    return parse_golds(getattr(task, field))


def _sampled_ids(trace: Any) -> list[int] | None:
    """Returns the token ids that the policy sampled; None if it has replied several times, or sends no ids."""
    sampled = [node for node in trace.nodes if any(node.mask)]
    if len(sampled) != 1:
        return None
    return [token for token, is_sampled in zip(sampled[0].token_ids, sampled[0].mask, strict=True) if is_sampled]


def _reply(trace: Any) -> str:
    """Returns the text of the last reply. verifiers separates reasoning from it; here it is in a think block again."""
    if trace.root_reply is not None or not trace.assistant_messages:
        return trace.last_reply
    message = trace.assistant_messages[-1]
    return join_reasoning(message.reasoning_content, message.content or "")


def _messages(messages: Any) -> list[dict[str, Any]]:
    return [message.model_dump() for message in messages]
