"""The extractor beside transformers.generate, in turns: extract.py CORVER_HOST MODEL OUT.

One model, one prompt of about 212 tokens and one of about 1,030, 32 sentences decoded together, greedily, in f32 on two threads. Both
stop at the model's stop tokens, where the reply's list closes, or after 64 tokens. Times are without loading; the peak memory is the
whole process's.
"""

import json
import os
import resource
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
    """As many examples as make a prompt of about so many tokens."""
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
    command = ["extract", "--model", model, "--prompt", "prompt.txt", "--no-chat", "--max-new-tokens", str(MOST), "--device", "cpu"]
    out = subprocess.run(
        [host, "--json", *command, "--raw", "--stats", "sentences.txt"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    *lines, stats = map(json.loads, out.splitlines())
    return {"seconds": stats["seconds"], "replies": [line["reply"] for line in lines], "tokens": stats["tokens"]}


def there(model, prompt):
    """Prints the seconds and the replies: a process of its own, so that its memory can be measured."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList

    torch.set_num_threads(THREADS)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

    class ListCloses(StoppingCriteria):
        """Where the brackets outside quotes are balanced."""

        def __call__(self, ids, scores, **_):
            return torch.tensor([closes(text) for text in tokenizer.batch_decode(ids[:, longest:], skip_special_tokens=True)])

    def closes(text):
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

    inputs = tokenizer([prompt.replace("{sentence}", s) for s in sentences()], return_tensors="pt", padding=True, add_special_tokens=False)
    longest = inputs["input_ids"].shape[1]
    start = time.perf_counter()
    with torch.no_grad():
        out = policy.generate(
            **inputs, do_sample=False, max_new_tokens=MOST, stopping_criteria=StoppingCriteriaList([ListCloses()]),
            pad_token_id=tokenizer.pad_token_id,
        )
    seconds = time.perf_counter() - start
    texts = tokenizer.batch_decode(out[:, longest:], skip_special_tokens=True)
    print(json.dumps({"seconds": seconds, "replies": texts, "shared": longest}))


def peer(model, prompt):
    command = [sys.executable, __file__, "peer", model]
    out = subprocess.run(command, input=prompt, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def peak(run):
    """What it returns, and the most memory that a child took so far, in bytes."""
    result = run()
    return result, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main():
    if sys.argv[1] == "peer":
        return there(sys.argv[2], sys.stdin.read())
    from transformers import AutoTokenizer

    host, model, out = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(model)
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for tokens in PROMPTS:
            prompt = prompt_of(tokenizer, tokens)
            turns = {"prompt": len(tokenizer(prompt)["input_ids"]), "here": [], "transformers": []}
            for _ in range(TURNS):
                # Ours first: the larger of the two peaks is what the system remembers.
                mine, memory_here = peak(lambda: here(host, model, prompt, Path(folder)))
                theirs, memory_there = peak(lambda: peer(model, prompt))
                turns["here"].append(mine["seconds"])
                turns["transformers"].append(theirs["seconds"])
                turns.setdefault("memory", {"here": memory_here, "transformers": memory_there})
            turns["equal"] = sum(map(str.__eq__, mine["replies"], theirs["replies"]))
            turns["tokens"] = mine["tokens"]
            turns["ratio"] = statistics.median(turns["transformers"]) / statistics.median(turns["here"])
            result[tokens] = turns
            print(json.dumps({tokens: turns}), flush=True)
    short, long = (statistics.median(result[tokens]["here"]) for tokens in PROMPTS)
    result["a long prompt costs"] = long / short
    print(f"a long prompt costs {long / short:.2f} times as much as a short one")
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


os.environ["OMP_NUM_THREADS"] = str(THREADS)
main()
