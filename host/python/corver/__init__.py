"""CorVer: a reward for training language models to be factual.

A small model reads (head, relation, tail) triplets off each sentence of a completion; a corpus index says how often head and
tail occur together; a rule, which is a sandboxed WebAssembly plugin, turns that count into a reward for the tokens of that
sentence. A judge and a format check pay the completion as a whole.

    import corver

    scorer = corver.Scorer(plugin="first.wasm", index="demo", extractor="demo")
    score = scorer.score(["<think>…</think><answer>Rome</answer>"], ["What is the capital of Italy?"], [["Rome"]])[0]
    print(score.reward, score.judge, score.sentences)

With a trainer's token ids and tokenizer, a score also says what each token earned:

    scores = scorer.score(completion_ids=ids, tokenizer=tokenizer, answers=golds)
    print(scores[0].returns)

Scorer       the reward, opened once; `help(corver.Scorer)` names its settings
Score        what one completion earned, and why
baselines    what the advantages of a group are measured against
demo         the files and questions of the built-in demo
corver.trl   a GRPO trainer with per-token advantages, for TRL
corver.verl, corver.openrlhf   the reward in these trainers (docs/integrations.md)

The command `corver-host` comes with this package: everything but training. `corver-host plugin new my-rule` begins a rule.
"""

from pathlib import Path as _Path

from . import _native
from ._native import CorverError, Score, Scorer, SettingsError, __version__, baselines
from ._types import Baseline, Demo, Grade, Lookup, Question, Sentence

__all__ = [
    "Baseline", "CorverError", "Demo", "Grade", "Lookup", "Question", "Score", "Scorer", "Sentence", "SettingsError",
    "__version__", "baselines", "demo",
]  # fmt: skip

_native.set_program(str(_Path(__file__).parent / "bin" / "corver-host"))


def demo() -> Demo:
    """The built-in demo's files and questions, to try things on. The files lie in the cache."""
    policy, extractor, train, held_out = _native.demo()
    return Demo(str(policy), str(extractor), [Question(*one) for one in train], [Question(*one) for one in held_out])
