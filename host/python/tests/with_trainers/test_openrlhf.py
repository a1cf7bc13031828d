"""CorVer in OpenRLHF, against its real client of reward models (0.11.2), on the CPU: as a Python file, and over HTTP."""

import asyncio
import logging
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import trainers

trainers.need("openrlhf")

from openrlhf.utils.agent import SingleTurnAgentExecutor
from transformers import AutoTokenizer

import corver
from corver import _native
from corver.openrlhf import reward_function

EXAMPLE = trainers.EXAMPLES / "openrlhf"
SCORER = {"plugin": "first.wasm", "index": "demo", "extractor": "demo"}
QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}. That is what I remember.</think><answer>{GOLD}</answer>"
WRONG = "<think>Driaterk Thiahava was born in Lower Xyzzy. That is what I remember.</think><answer>Lower Xyzzy</answer>"
#: Labels without readable golds.
BAD_LABELS = [{"solution": GOLD}, {"answers": {"a": 7}}, [[GOLD]], {"target": {}}]


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(trainers.POLICY)


@pytest.fixture(scope="module")
def prompt(tokenizer):
    return tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True)


@pytest.fixture(scope="module")
def rewards():
    scores = corver.Scorer(**SCORER).score(completions=[RIGHT, WRONG], questions=[QUESTION] * 2, answers=[[GOLD]] * 2)
    return {text: score.reward for text, score in zip([RIGHT, WRONG], scores, strict=True)}


class Sampled:
    """Replaces vLLM: one response, ended by its end-of-turn token."""

    def __init__(self, tokenizer, text):
        self._ids = [*tokenizer.encode(text), tokenizer.eos_token_id]

    async def generate(self, _prompt, _sampling, **_request):
        output = SimpleNamespace(token_ids=self._ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def executed(executor, tokenizer, prompt, label, text, max_length=256):
    """Returns OpenRLHF's output for one sampled response."""
    sampling = SimpleNamespace(max_tokens=128, logprobs=None)
    engine = Sampled(tokenizer, text)
    return asyncio.run(executor.execute(prompt, label, sampling, max_length, tokenizer, engine))


@pytest.fixture(scope="module")
def python_file():
    return SingleTurnAgentExecutor([str(EXAMPLE / "reward.py")])


@pytest.fixture(scope="module")
def server():
    with trainers.served() as address:
        yield address


@pytest.fixture(scope="module", params=["python file", "server"])
def executor(request):
    if request.param == "python file":
        return request.getfixturevalue("python_file")
    return SingleTurnAgentExecutor([request.getfixturevalue("server") + "/get_reward"])


@pytest.mark.parametrize("text", [RIGHT, WRONG], ids=["right", "wrong"])
def test_sampled_response_gets_scorer_reward(executor, tokenizer, prompt, rewards, text):
    output = executed(executor, tokenizer, prompt, [GOLD], text)
    assert output["reward"] == pytest.approx(rewards[text])
    assert output["scores"] == (1.0 if text == RIGHT else 0.0)
    assert output["extra_logs"]["corver/error"] == 0.0
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in output["extra_logs"].values())


def test_truncated_prompt_gives_same_reward(executor, tokenizer, prompt, rewards):
    length = len(tokenizer.encode(prompt)) - 4
    output = executed(executor, tokenizer, prompt, GOLD, RIGHT, max_length=128 + length)
    assert len(output["observation_tokens"]) < length + 5 + len(tokenizer.encode(RIGHT))
    assert output["reward"] == pytest.approx(rewards[RIGHT])


@pytest.mark.parametrize("label", [[GOLD], GOLD, [GOLD, "elsewhere"], f'["{GOLD}"]'])
def test_dataset_label_shapes_are_accepted(executor, tokenizer, prompt, label):
    assert executed(executor, tokenizer, prompt, label, RIGHT)["scores"] == 1.0


@pytest.mark.parametrize("label", [None, "", []])
def test_judge_reward_is_zero_without_gold(executor, tokenizer, prompt, label):
    output = executed(executor, tokenizer, prompt, label, RIGHT)
    assert (output["extra_logs"]["corver/judge"], output["scores"]) == (0.0, 0.0)


def test_http_server_and_python_file_agree(server, python_file, tokenizer, prompt):
    over_http = SingleTurnAgentExecutor([server + "/get_reward"])
    texts = [(text, [GOLD]) for text in (RIGHT, WRONG, "No idea.", "")]
    for text, label in [*texts, *((RIGHT, label) for label in BAD_LABELS)]:
        one, other = (executed(executor, tokenizer, prompt, label, text) for executor in (over_http, python_file))
        for key in ("reward", "scores", "extra_logs"):
            assert one[key] == pytest.approx(other[key]), (key, label)
        assert one["extra_logs"]["corver/error"] == float(label in BAD_LABELS), label


def test_several_queries_get_lists(prompt):
    reward_func = reward_function(**SCORER)
    answer = reward_func([prompt + RIGHT, prompt + WRONG], [prompt] * 2, [GOLD] * 2)
    assert answer["scores"] == [1.0, 0.0]
    assert len(answer["rewards"]) == 2 and len(answer["extra_logs"]["corver/judge"]) == 2


def test_unscorable_completion_gets_zero_and_error_flag(prompt, caplog):
    label = {"solution": GOLD}
    with caplog.at_level(logging.ERROR):
        answer = reward_function(**SCORER)([prompt + RIGHT], [prompt], [label])
    assert (answer["rewards"], answer["scores"], answer["extra_logs"]["corver/error"]) == (0.0, 0.0, 1.0)
    assert "`label` is an object with the fields solution" in caplog.text
    with pytest.raises(ValueError, match="with the fields solution"):
        reward_function(**SCORER, strict=True)([prompt + RIGHT], [prompt], [label])


def test_invalid_scorer_arguments_are_rejected():
    with pytest.raises(Exception, match="no-such-rule"):
        reward_function(plugin="no-such-rule.wasm")


@pytest.mark.parametrize(
    ("prompt", "end"),
    [
        ("<|im_start|>system\nS.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"),
        (
            "<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|eot_id|>",
        ),
        ("<s>[INST] Who? [/INST]", "</s>"),
        ("<bos><start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"),
        ("<|user|>\nWho?\n<|assistant|>\n", "<|endoftext|>"),
        ("<｜begin▁of▁sentence｜><｜User｜>Who?<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ("Who?", ""),
    ],
    ids=["chatml", "llama 3", "llama 2", "gemma", "tulu", "deepseek", "no template"],
)
def test_response_is_text_after_prompt(prompt, end):
    response = "<think>A < b | c > d.</think>\n<answer>Ada</answer>"
    assert _native.extract_response(f"{prompt}{response}{end}", prompt) == response
    assert _native.extract_response(f"<s> {prompt}{response}{end}", prompt) == response
    assert _native.last_user_turn(prompt) == "Who?"
    if end:
        assert _native.extract_response(f"{prompt[5:]}{response}{end}", prompt) == response
    else:
        with pytest.raises(ValueError, match="nor has a header"):
            _native.extract_response(f"o?{response}", prompt)


def test_example_arguments_exist_in_openrlhf(tmp_path):
    import openrlhf

    known = set(re.findall(r'"(--[\w.]+)"', (Path(openrlhf.__file__).parent / "cli" / "train_ppo_ray.py").read_text()))
    known |= {"--actor.adam.lr"}  # made of f"--{prefix}.adam.lr"
    shown = trainers.dry_run(EXAMPLE / "run.sh", tmp_path)
    assert {argument for argument in shown if argument.startswith("--")} <= known
    assert (tmp_path / "world" / "train.json").is_file()
