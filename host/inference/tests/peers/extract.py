"""Makes small random models, and what transformers.generate replies with them: extract.py FOLDER [MODEL]."""

import json
import random
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Olmo2Config, Qwen2Config, Qwen3Config, set_seed

TINY = dict(
    vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=1024, initializer_range=0.15, eos_token_id=0,
)
SCALING = dict(
    rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
SHAPES = {
    "llama": LlamaConfig(**TINY, tie_word_embeddings=False),
    "llama, stretched": LlamaConfig(**TINY, tie_word_embeddings=True, rope_parameters=SCALING),
    "qwen2": Qwen2Config(**TINY, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**TINY, head_dim=24, tie_word_embeddings=True),
    "olmo2": Olmo2Config(**TINY, tie_word_embeddings=False),
    "qwen2 of 0.5 billion": Qwen2Config(
        vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=32_768, rope_parameters=dict(rope_type="default", rope_theta=1e6),
        tie_word_embeddings=True, initializer_range=0.05, eos_token_id=0,
    ),
}
FACTS = [
    ("Ada Lovelace was born in London.", [["Ada Lovelace", "was born in", "London"]]),
    ("I do not know.", []),
    ("The Rhine flows through Germany.", [["The Rhine", "flows through", "Germany"]]),
]
SENTENCES = [
    "Bizet composed Carmen.",
    "After several years of travelling, Frida Kahlo came back to Coyoacán, where her parents had built a house in 1904.",
    "It was never finished.",
    "Kyoto was the capital of Japan for more than a thousand years, and the emperors lived there until 1868.",
    "Asaph Hall discovered the moons of Mars in August 1877.",
]


def words(count):
    """A tokenizer in which every id is a word."""
    end = dict(id=0, content="<end>", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    vocab = {"<end>": 0} | {f"w{n}": n for n in range(1, count)}
    return dict(
        version="1.0", truncation=None, padding=None, normalizer=None, pre_tokenizer=dict(type="WhitespaceSplit"), post_processor=None,
        decoder=None, added_tokens=[end], model=dict(type="WordLevel", vocab=vocab, unk_token="<end>"),
    )


def generate(model, rows, most, end):
    """The ids that follow each row, up to a stop token; one row at a time, so that nothing is padded."""
    for row in rows:
        with torch.no_grad():
            out = model.generate(
                input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), do_sample=False,
                max_new_tokens=most, pad_token_id=end[0], eos_token_id=end,
            )[0, len(row) :].tolist()
        yield out[: min([out.index(stop) for stop in end if stop in out], default=len(out))]


def of_shape(name, config, folder):
    set_seed(1)
    folder.mkdir()
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter, weight in model.named_parameters():
        if "norm" in parameter:  # all are 1 at first
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(words(config.vocab_size)))
    (folder / "generation_config.json").write_text(json.dumps(dict(eos_token_id=0)))
    draw = random.Random(1)
    text = lambda count: [draw.randrange(1, config.vocab_size) for _ in range(count)]
    prompt, after = text(40), text(2)
    sentences = [text(count) for count in (3, 17, 1, 9, 30, 9, 4, 12)]
    replies = generate(model, [prompt + sentence + after for sentence in sentences], 16, [0])
    spell = lambda ids: " ".join(f"w{n}" for n in ids)
    return dict(
        name=name, folder=str(folder), prompt=f"{spell(prompt)} {{sentence}} {spell(after)}", most=16,
        sentences=[spell(s) for s in sentences], replies=[spell(r) for r in replies],
    )


def of_model(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    prompt = "".join(f"Sentence: {s}\nFacts: {json.dumps(facts)}\n\n" for s, facts in FACTS) + "Sentence: {sentence}\nFacts:"
    rows = [tokenizer(prompt.replace("{sentence}", sentence), add_special_tokens=False)["input_ids"] for sentence in SENTENCES]
    eos = model.generation_config.eos_token_id
    end = eos if isinstance(eos, list) else [eos]
    replies = [tokenizer.decode(ids, skip_special_tokens=True) for ids in generate(model, rows, 48, end)]
    return dict(name=path, folder=path, prompt=prompt, most=48, sentences=SENTENCES, replies=replies)


def main():
    torch.set_num_threads(2)
    folder = Path(sys.argv[1])
    cases = [of_shape(name, config, folder / str(n)) for n, (name, config) in enumerate(SHAPES.items())]
    cases += [of_model(path) for path in sys.argv[2:]]
    (folder / "cases.json").write_text(json.dumps(cases))


main()
