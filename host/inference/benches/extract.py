"""The extractor against transformers.generate, and onnxruntime-genai if it is installed, in turns:
extract.py CORVER_HOST MODEL OUT.

One model, one prompt of about 212 tokens and one of about 1,030, 32 sentences decoded together, greedily, in f32 on two threads. All
stop at the model's stop tokens, where the reply's list closes, or after 64 tokens. Times are without loading; the peak memory is the
whole process's.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS, ROWS, MOST, TURNS = 2, 32, 64, 2
PROMPTS = (212, 1030)

INSTRUCTIONS = 'List the facts that a sentence states, as [["subject", "relation", "object"], ...]; [] where it states none.\n\n'
EXAMPLES = [
    ("Marie Curie was born in Warsaw in 1867.", [["Marie Curie", "was born in", "Warsaw"], ["Marie Curie", "was born in", "1867"]]),
    ("The Rhine flows through Germany.", [["The Rhine", "flows through", "Germany"]]),
    ("I am not sure about that.", []),
    ("George Eliot wrote Middlemarch, which came out in 1871.", [["George Eliot", "wrote", "Middlemarch"], ["Middlemarch", "came out in", "1871"]]),
    ("Asaph Hall discovered the moons of Mars.", [["Asaph Hall", "discovered", "the moons of Mars"]]),
    ("Kyoto was the capital of Japan for a thousand years.", [["Kyoto", "was the capital of", "Japan"]]),
    ("Ole Rømer measured the speed of light in Paris.", [["Ole Rømer", "measured", "the speed of light"]]),
    ("Rembrandt's Night Watch hangs in Amsterdam.", [["Rembrandt", "painted", "Night Watch"], ["Night Watch", "hangs in", "Amsterdam"]]),
]
PEOPLE = ("Ada Lovelace", "Johann Sebastian Bach", "Li Bai", "Simone de Beauvoir", "Srinivasa Ramanujan", "Frida Kahlo")
PLACES = ("London", "the Duchy of Saxe-Weimar", "Chang'an", "Paris", "Madras", "Coyoacán, a suburb of Mexico City")
PATTERNS = (
    "{person} was born in {place}.",
    "After several years of travelling, {person} came back to {place}, where a school was named after the family in 1{n}.",
    "{place} is where {person} wrote the last of {n} letters to an editor whose name has not come down to us.",
    "It was in {place} that {person} first met the patrons who would pay for the next {n} months of work.",
)


def sentences():
    many = range(ROWS)
    return [PATTERNS[n % 4].format(person=PEOPLE[n % 6], place=PLACES[(n // 6 + n) % 6], n=20 + 7 * n) for n in many]


def prompt_of(tokenizer, tokens):
    """Examples for a prompt of about this number of tokens."""
    text = INSTRUCTIONS
    for n in range(1000):
        sentence, facts = EXAMPLES[n % len(EXAMPLES)]
        longer = text + f"Sentence: {sentence}\nFacts: {json.dumps(facts, ensure_ascii=False)}\n\n"
        if len(tokenizer(longer)["input_ids"]) > tokens:
            return text + "Sentence: {sentence}\nFacts:"
        text = longer


def here(host, model, prompt, folder):
    (folder / "prompt.txt").write_text(prompt)
    (folder / "sentences.txt").write_text("\n".join(sentences()) + "\n")
    command = [host, "--json", "extract", "--extractor", model, "--prompt", "prompt.txt", "--no-chat", "--device", "cpu"]
    out, memory = run([*command, "--max-new-tokens", str(MOST), "--raw", "--stats", "sentences.txt"], folder)
    *lines, stats = map(json.loads, out.splitlines())
    return {"seconds": stats["seconds"], "replies": [line["reply"] for line in lines], "memory": memory}


def there(peer, model, prompt, folder):
    out, memory = run([sys.executable, str(Path(__file__).absolute()), "peer", peer, model], folder, prompt)
    return {**json.loads(out.splitlines()[-1]), "memory": memory}


def closes(text):
    """Whether the brackets outside quotes are balanced."""
    depth, quoted, skip = 0, False, False
    for c in text:
        if skip:
            skip = False
        elif quoted:
            skip, quoted = c == "\\", c != '"'
        elif c == '"':
            quoted = True
        elif c == "[":
            depth += 1
        elif c == "]" and depth:
            depth -= 1
            if depth == 0:
                return True
    return False


def transformers(model, tokenizer, inputs):
    import torch
    from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

    torch.set_num_threads(THREADS)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    inputs = inputs.convert_to_tensors("pt")
    longest = inputs["input_ids"].shape[1]

    class ListCloses(StoppingCriteria):
        def __call__(self, ids, scores, **_):
            return torch.tensor([closes(text) for text in tokenizer.batch_decode(ids[:, longest:], skip_special_tokens=True)])

    start = time.perf_counter()
    with torch.no_grad():
        out = policy.generate(
            **inputs, do_sample=False, max_new_tokens=MOST, stopping_criteria=StoppingCriteriaList([ListCloses()]),
            pad_token_id=tokenizer.pad_token_id,
        )
    seconds = time.perf_counter() - start
    return seconds, tokenizer.batch_decode(out[:, longest:], skip_special_tokens=True)


def genai(model, tokenizer, inputs):
    """ONNX Runtime's own loop, with the graph that its builder makes."""
    import numpy
    import onnxruntime_genai

    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", model, "-o", folder, "-p", "fp32", "-e", "cpu"]
        subprocess.run(build, check=True, capture_output=True)
        path = Path(folder) / "genai_config.json"
        config = json.loads(path.read_text())
        config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = THREADS
        path.write_text(json.dumps(config))
        policy = onnxruntime_genai.Model(folder)
    ids = numpy.array(inputs["input_ids"], dtype=numpy.int32)
    longest = ids.shape[1]
    settings = onnxruntime_genai.GeneratorParams(policy)
    settings.set_search_options(do_sample=False, batch_size=ROWS, max_length=longest + MOST)
    generator = onnxruntime_genai.Generator(policy, settings)

    def replies():
        return tokenizer.batch_decode([generator.get_sequence(row)[longest:] for row in range(ROWS)], skip_special_tokens=True)

    start = time.perf_counter()
    generator.append_tokens(ids)
    ended = [None] * ROWS
    while not generator.is_done() and None in ended:
        generator.generate_next_token()
        ended = [end or (text if closes(text) else None) for end, text in zip(ended, replies())]
    seconds = time.perf_counter() - start
    return seconds, [end or text for end, text in zip(ended, replies())]


def be_peer(peer, model, prompt):
    """Prints the seconds and the replies, as a process of its own."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    inputs = tokenizer([prompt.replace("{sentence}", s) for s in sentences()], padding=True, add_special_tokens=False)
    seconds, replies = {"transformers": transformers, "genai": genai}[peer](model, tokenizer, inputs)
    print(json.dumps({"seconds": seconds, "replies": replies}))


def run(command, folder, text=""):
    """What a process prints, and the most memory that it took, in bytes."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as printed:
        given.write(text)
        given.seek(0)
        child = subprocess.Popen(command, cwd=folder, stdin=given, stdout=printed)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{command}: status {status}")
        printed.seek(0)
        return printed.read(), usage.ru_maxrss * 1024


def main():
    if sys.argv[1] == "peer":
        return be_peer(sys.argv[2], sys.argv[3], sys.stdin.read())
    from transformers import AutoTokenizer

    host, model, out = (str(Path(path).absolute()) for path in sys.argv[1:])
    tokenizer = AutoTokenizer.from_pretrained(model)
    peers = ["transformers"] + ["genai"] * (importlib.util.find_spec("onnxruntime_genai") is not None)
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for tokens in PROMPTS:
            prompt = prompt_of(tokenizer, tokens)
            seconds, memory, equal = {}, {}, {}
            for _ in range(TURNS):
                turn = {"here": here(host, model, prompt, Path(folder))}
                turn |= {name: there(name, model, prompt, folder) for name in peers}
                for name, done in turn.items():
                    seconds.setdefault(name, []).append(done["seconds"])
                    memory[name] = done["memory"]
                    # After a list without a fact, the peers stop and the extractor decodes further.
                    equal[name] = sum(map(str.startswith, turn["here"]["replies"], done["replies"]))
            median = {name: statistics.median(turns) for name, turns in seconds.items()}
            ratio = {name: median[name] / median["here"] for name in peers}
            prompt_tokens = len(tokenizer(prompt)["input_ids"])
            result[tokens] = {"prompt": prompt_tokens, "seconds": seconds, "ratio": ratio, "memory": memory, "equal": equal}
            print(json.dumps({tokens: result[tokens]}), flush=True)
    short, long = (statistics.median(result[tokens]["seconds"]["here"]) for tokens in PROMPTS)
    result["a long prompt costs"] = long / short
    print(f"a long prompt costs {long / short:.2f} times as much as a short one")
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


os.environ["OMP_NUM_THREADS"] = str(THREADS)
main()
