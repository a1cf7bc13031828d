"""Makes models with random weights in the folders' published form, and the answers of transformers to pairs: nli.py FOLDER [--small].

FOLDER/hhem and FOLDER/deberta are models with a golden.json, computed in f64; FOLDER/positions.json has the rows of the tables of relative
positions. `--small` makes what is committed in tests/nli/small. HHEM's own code is written against an older transformers; `hhem_scores`
is its `predict`, over the same `T5ForTokenClassification`.
"""

import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification, PreTrainedTokenizerFast, T5Config, T5ForTokenClassification
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.t5.modeling_t5 import T5Attention

PROMPT = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\nHypothesis: {text2}"
# config.json as published; the shape of HHEM is that of flan-t5-base and stands nowhere.
HHEM = {
    "architectures": ["HHEMv2ForSequenceClassification"],
    "auto_map": {
        "AutoConfig": "configuration_hhem_v2.HHEMv2Config",
        "AutoModelForSequenceClassification": "modeling_hhem_v2.HHEMv2ForSequenceClassification",
    },
    "model_type": "HHEMv2Config",
    "torch_dtype": "float32",
    "transformers_version": "4.39.3",
}
DEBERTA = {
    "architectures": ["DebertaV2ForSequenceClassification"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-07,
    "max_relative_positions": -1,
    "model_type": "deberta-v2",
    "norm_rel_ebd": "layer_norm",
    "pad_token_id": 0,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
}
FLAN_T5 = dict(feed_forward_proj="gated-gelu", relative_attention_num_buckets=32, relative_attention_max_distance=128, num_labels=2)

WORDS = """a an and answer are as at born by capital city composed directed film first for from had has he her his hypothesis if in is
it its king known lies lived married moon music novel of old on opera or painter part poet premise river school she song star the
their there they this to true two was were who with world writer wrote year determine given""".split()
TEXTS = [
    "Georges Bizet composed the opera Carmen, which was first heard in Paris in 1875.",
    "The Rhine is a river; it has its source in the Alps.",
    "Asaph Hall discovered the two moons of Mars in August 1877, from the observatory in Washington.",
    "She was born in Coyoacán and lived there with her parents.",
    "Kyoto was the capital of Japan for more than a thousand years.\n\nThe emperors lived there until 1868.",
    "Who wrote it?",
    "It is not known.",
]


def unigram(special, last=()):
    """A tokenizer's model with a piece for every common word, letter and sign."""
    words = [f"▁{word}" for word in WORDS]
    signs = list("▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:?!'\"()-é")
    pieces = [(piece, 0.0) for piece in special]
    pieces += [(piece, -4.0 - n / 50) for n, piece in enumerate(words)] + [(sign, -6.0 - n / 50) for n, sign in enumerate(signs)]
    pieces += [(piece, 0.0) for piece in last]
    return pieces


def t5_tokenizer():
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.Unigram(unigram(special), unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def deberta_tokenizer():
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = Tokenizer(models.Unigram(unigram(special, ["[MASK]"]), unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special + ["[MASK]"]])
    return tokenizer


def pairs():
    draw = random.Random(1)
    texts = TEXTS + [" ".join(draw.choices(TEXTS, k=n)) for n in (2, 3, 5, 8)]
    pairs = [(draw.choice(texts), draw.choice(TEXTS)) for _ in range(18)]
    # Longer than 512 tokens: premise alone, and both.
    return pairs + [(" ".join(TEXTS * 4), TEXTS[3]), (" ".join(TEXTS * 4), " ".join(TEXTS[::-1] * 3)), ("", TEXTS[0]), (TEXTS[0], "")]


def randomise(model, scale, dtype):
    """Weights of about this size, as they are after having been stored."""
    for name, weight in model.named_parameters():
        is_norm = "norm" in name.lower() and name.endswith("weight")
        torch.nn.init.normal_(weight, mean=1.0 if is_norm else 0.0, std=0.2 if is_norm else scale)
        weight.data = weight.data.to(dtype).float()


def write(folder, config, weights, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))


def hhem_scores(model, tokenizer, pairs):
    inputs = tokenizer([PROMPT.format(text1=a, text2=b) for a, b in pairs], return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, 0, :]
    return torch.softmax(logits, dim=-1)[:, 1]


def make_hhem(folder, shape, scale):
    torch.manual_seed(1)
    model = T5ForTokenClassification(T5Config(**FLAN_T5, **shape)).eval()
    # The encoder reads the shared table, which is stored under one name.
    model.transformer.encoder.embed_tokens.weight = model.transformer.shared.weight
    randomise(model, scale, torch.float32)
    weights = {f"t5.{name}": value for name, value in model.state_dict().items() if not name.endswith("embed_tokens.weight")}
    tokenizer = t5_tokenizer()
    write(folder, HHEM, weights, tokenizer)
    return model.double(), PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def deberta_scores(model, tokenizer, pairs):
    inputs = tokenizer([a for a, _ in pairs], [b for _, b in pairs], truncation=True, max_length=512, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    return torch.softmax(logits, dim=-1)


def make_deberta(folder, shape, scale, labels):
    torch.manual_seed(2)
    config = DEBERTA | shape | {"id2label": {str(n): label for n, label in enumerate(labels)}, "label2id": {label: n for n, label in enumerate(labels)}}
    model = DebertaV2ForSequenceClassification(DebertaV2Config(**config)).float().eval()
    randomise(model, scale, torch.float16)
    weights = {name: value.half() for name, value in model.state_dict().items()}
    weights["deberta.embeddings.position_ids"] = torch.arange(512).unsqueeze(0)
    tokenizer = deberta_tokenizer()
    write(folder, config, weights, tokenizer)
    special = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")
    return model.double(), PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def golden(folder, answers):
    rounded = [{name: round(share, 7) for name, share in answer.items()} for answer in answers]
    rows = [dict(premise=a, hypothesis=b, **answer) for (a, b), answer in zip(pairs(), rounded)]
    (folder / "golden.json").write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")


def positions():
    """Rows of both tables, for the distances −700 to 700 and the published sizes."""
    distances = torch.arange(-700, 701)
    t5 = T5Attention._relative_position_bucket(distances, bidirectional=True, num_buckets=32, max_distance=128)
    deberta = torch.clamp(make_log_bucket_position(distances, 256, 512).long() + 256, 0, 511)
    return dict(t5=t5.tolist(), deberta=deberta.tolist())


VOCABULARY = len(unigram(["<pad>"] * 4, ["[MASK]"]))


def small(folder):
    """The models that are committed; their table of positions is so short that texts reach its end."""
    hhem = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=3)
    deberta = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                   position_buckets=16, max_position_embeddings=64)
    return make_hhem(folder / "hhem", hhem, 0.25), make_deberta(folder / "deberta", deberta, 0.3, ["contradiction", "entailment", "neutral"])


def larger(folder):
    hhem = dict(vocab_size=VOCABULARY, d_model=192, d_kv=32, d_ff=256, num_layers=4, num_heads=5)
    deberta = dict(vocab_size=VOCABULARY, hidden_size=192, intermediate_size=384, num_hidden_layers=4, num_attention_heads=6,
                   position_buckets=256, max_position_embeddings=512)
    return make_hhem(folder / "hhem", hhem, 0.1), make_deberta(folder / "deberta", deberta, 0.12, ["entailment", "neutral", "contradiction"])


def main(folder, models):
    hhem, deberta = models(folder)
    # One pair at a time, so that nothing is padded.
    golden(folder / "hhem", [dict(entail=hhem_scores(*hhem, [pair]).item()) for pair in pairs()])
    short = {"entailment": "entail", "neutral": "neutral", "contradiction": "contradict"}
    labels = [short[label] for _, label in sorted(deberta[0].config.id2label.items())]
    golden(folder / "deberta", [dict(zip(labels, deberta_scores(*deberta, [pair])[0].tolist())) for pair in pairs()])
    (folder / "positions.json").write_text(json.dumps(positions()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), small if "--small" in sys.argv[2:] else larger)
