"""CorVer: a reward for training language models to be factual.

A small model reads (head, relation, tail) triplets from each sentence of a completion. A corpus index counts how often head and
tail occur together. A rule, which is a sandboxed WebAssembly plugin, turns the count into a reward for the tokens of the
sentence. An answer judge and a format check add rewards for the completion.

    import corver

    scorer = corver.Scorer(plugin="first.wasm", index="demo", extractor="demo")
    score = scorer.score(["<think>…</think><answer>Rome</answer>"], ["What is the capital of Italy?"], [["Rome"]])[0]
    print(score.reward, score.judge, score.sentences)

With a trainer's token ids and tokenizer, a score has the return of each token, from which advantages follow:

    scores = scorer.score(completion_ids=ids, tokenizer=tokenizer, answers=golds)
    advantages = corver.advantages([score.returns for score in scores], group_size=16)

Scorer       the reward, opened once; `help(corver.Scorer)` lists its settings
Score        the reward of a completion, with its reasons
advantages   returns of a batch to advantages of its tokens
demo         the files and questions of the built-in demo
corver.trl   a GRPO trainer with per-token advantages, for TRL
corver.reward   the reward as functions that trainers import by name
corver.verl, corver.openrlhf, corver.skyrl   the reward in these trainers (docs/integrations.md)
corver.inspect, corver.verifiers   the reward in these harnesses

The command `corver-host` comes with this package, without training. `corver-host plugin new my-rule` starts a rule.
"""

from pathlib import Path as _Path

from . import _native
from ._native import CorverError, Score, Scorer, SettingsError, __version__, advantages
from ._types import Demo, Grade, Lookup, Question, Sentence

__all__ = [
    "CorverError", "Demo", "Grade", "Lookup", "Question", "Score", "Scorer", "Sentence", "SettingsError", "__version__",
    "advantages", "demo",
]  # fmt: skip

_native.set_host_program(str(_Path(__file__).parent / "bin" / "corver-host"))


def demo() -> Demo:
    """Returns the files and questions of the built-in demo, for a first try. The files are in the cache."""
    policy, extractor, train, held_out = _native.unpack_demo()
    return Demo(str(policy), str(extractor), [Question(*row) for row in train], [Question(*row) for row in held_out])
