"""The method, once more: a slow and plain reference, written from the formulas of the paper.

`python3 tests/vectors/reference.py` writes the vectors next to this file; with `--check` it compares them with those
that are there. The Rust tests named `vectors.rs` read them. The inputs are in `inputs.py`. Where the paper is silent,
the comments say what holds. Characters are Unicode code points; white space and word characters are those of `re`.
"""

import math
import pathlib
import re
import unicodedata

# Sentences ------------------------------------------------------------------------------------------------------------

TAG = re.compile("</?(?:think|answer)>")
# A sentence ends at a terminator that white space follows, or where the text ends.
SENTENCE = re.compile(r"\S.*?(?:(?<=[.!?])(?=\s)|\Z)", re.DOTALL)


def trimmed(text, start, end):
    """[start, end) without white space at its ends."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return start, start + len(text[start:end].rstrip())


def spans_of_sentences(text, start, end):
    start, end = trimmed(text, start, end)
    return [match.span() for match in SENTENCE.finditer(text, start, end)]


def split_sentences(text):
    return [text[start:end] for start, end in spans_of_sentences(text, 0, len(text))]


def blocks(text):
    """The think block, then the answer block; without either, the whole text.

    A block that is never closed ends where the other one opens or the text ends; a `</think>` without `<think>` closes
    a block that the prompt opened. An answer inside the think block is part of the reasoning.
    """
    tags = [(match.group(), *match.span()) for match in TAG.finditer(text)]

    def first(*names, after=0):
        places = ((start, end) for name in names for tag, start, end in tags if tag == name and start >= after)
        return next(places, None)

    think = answer = None
    opened = first("<think>")
    if opened or first("</think>"):
        begin = opened[1] if opened else 0
        closed = first("</think>", "<answer>", after=begin)
        think = (begin, closed[0] if closed else len(text))
    behind = first("<answer>", after=think[1] if think else 0)
    before = first("<answer>") if think and opened and not behind else None
    if behind:
        closed = first("</answer>", after=behind[1])
        answer = (behind[1], closed[0] if closed else len(text))
    elif before and before[1] <= opened[0]:
        closed = first("</answer>", after=before[1])
        answer = (before[1], min(closed[0] if closed else len(text), opened[0]))
    found = [(name, block) for name, block in (("think", think), ("answer", answer)) if block]
    return found or [("body", (0, len(text)))]


def split_paper(text):
    """Sentences [(section, text, span)] and the spans of the scored sections. A tag inside a block ends a sentence."""
    sentences, sections = [], []
    for section, (start, end) in blocks(text):
        start, end = trimmed(text, start, end)
        if start == end:
            continue
        sections.append((start, end))
        tags = [match.span() for match in TAG.finditer(text, start, end)]
        begins, ends = [start] + [tag[1] for tag in tags], [tag[0] for tag in tags] + [end]
        for begin, stop in zip(begins, ends):
            sentences += [(section, text[a:b], (a, b)) for a, b in spans_of_sentences(text, begin, stop)]
    return sentences, sections


def split_published(text):
    """As the published code does: closed blocks only, found again by searching for their text.

    The answer is searched for behind the think block. A section that is not found keeps its sentences; these are
    searched for from the last character on.
    """
    sentences, sections = [], []
    if not text.strip():
        return sentences, sections
    found, search_from = [], 0
    for name in ("think", "answer"):
        block = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        if block and block.group(1).strip():
            found.append((name, block.group(1).strip(), search_from))
        if block and name == "think":
            search_from = block.end()
    for name, content, begin in found or [("body", text, 0)]:
        start = text.find(content, begin)
        if start >= 0:
            sections.append((start, start + len(content)))
        at = start if start >= 0 else len(text) - 1
        for sentence in split_sentences(content):
            place = text.find(sentence, at)
            at = at if place < 0 else place + len(sentence)
            sentences.append((name, sentence, None if place < 0 else (place, at)))
    return sentences, sections


def align(sentences, sections, tokens):
    """σ: the first sentence whose span holds the token's midpoint; and the alignment rate."""

    def holding(spans, token):
        midpoint = sum(token) / 2
        return [index for index, span in enumerate(spans) if span and span[0] <= midpoint < span[1]]

    spans = [span for _, _, span in sentences]
    sigma = [next(iter(holding(spans, token)), None) if token else None for token in tokens]
    scored = sum(1 for token in tokens if token and holding(sections, token)) if sections else len(tokens)
    return sigma, (sum(index is not None for index in sigma) / max(scored, 1) if sentences else 0.0)


# Response-level rewards -----------------------------------------------------------------------------------------------


def normalize(text):
    text = unicodedata.normalize("NFKD", text).lower().strip()
    text = re.sub(r"\b(?:a|an|the)\b", " ", text)
    return " ".join(re.sub(r"[^\w\s]", " ", text).split())


ANSWER_RULES = ["paper", "published_training", "published_evaluation"]


def extract_answer(completion, rule):
    """What is graded. The published training judge takes a whole text without the tag for the answer, the published
    evaluation goes on behind the closing tag."""
    before, tag, answer = completion.partition("<answer>")
    if not tag:
        answer = before if rule == "published_training" else ""
    elif rule != "published_evaluation":
        answer = answer.partition("</answer>")[0]
    return answer.strip()


def alike(text):
    return unicodedata.normalize("NFKD", text).lower().strip()


def judge(completion, golds, rule):
    """The label. Golds are separated by `;`. A gold of which normalising leaves nothing, such as `A+`, matches nothing in the published
    rules, and otherwise the same text in any case."""
    answer = extract_answer(completion, rule)
    if rule == "paper" and any(not normalize(gold) and alike(gold) == alike(answer) for gold in golds.split(";") if gold.strip()):
        return "GOOD"
    spoken, answer = answer.lower().strip(), normalize(answer)
    if rule == "published_training":
        spoken = spoken.replace("\u2019", "'")
    if spoken == "i don't know" or spoken == "i do not know" or not answer:
        return "NOT_ATTEMPTED"
    golds = [gold for gold in map(normalize, golds.split(";")) if gold]
    return "GOOD" if any(answer in gold or gold in answer for gold in golds) else "BAD"


JUDGE_REWARD = {"GOOD": 2.0, "BAD": -1.0, "NOT_ATTEMPTED": -1.0}


def format_paper(completion):
    """+1 for `<think>…</think>…<answer>` whose reasoning has 30 characters, a letter, and no `<` as its first."""
    match = re.search("<think>(.*?)</think>.*?<answer>", completion, re.DOTALL)
    reasoning = match.group(1) if match else ""
    in_earnest = len(reasoning) >= 30 and any(c.isalpha() for c in reasoning) and reasoning.lstrip()[0] != "<"
    return 1.0 if in_earnest else -1.0


def format_published(completion):
    """+1 for reasoning, then an answer. `<think>` and `</think>` may be missing; the reasoning is the shortest text of
    at least 30 characters before `<answer>` that only white space and one `</think>` follow."""
    body = completion.removeprefix("<think>").lstrip()
    before, tag, answer = body.partition("<answer>")
    answer = answer.lstrip()
    if body.startswith("<") or not tag or not answer:
        return -1.0
    if "<think>" in before or re.search("<think>|<answer>", answer[1:]):
        return -1.0
    for length in range(30, len(before) + 1):
        if re.fullmatch(r"\s*(?:</think>)?\s*", before[length:]):
            return 1.0 if re.search("[A-Za-z]", before[:length]) else -1.0
    return -1.0


# Triplets and queries -------------------------------------------------------------------------------------------------


def parse_reply(reply):
    """The elements of the reply's last outermost list, closed or not; nothing where a `]` ends text outside any list.

    Quotes only take their special meaning from brackets and commas, and a backslash in them from the next character.
    Empty elements vanish. In an inner list, a comma behind the third element's text belongs to that text.
    """
    reply = reply.strip().removeprefix("entities:").strip()
    open_lists, text, closed, quote, escaped = [], "", None, None, False

    def store():
        nonlocal text
        if open_lists:
            open_lists[-1].extend([text.strip()] if text.strip() else [])
        text = ""

    for char in reply:
        if escaped:
            text, escaped = text + char, False
        elif quote:
            escaped, quote = char == "\\", None if char == quote else quote
            text += char if quote and not escaped else ""
        elif char in '"\u201c':
            quote = '"' if char == '"' else "\u201d"
        elif char == "[":
            open_lists.append([])
        elif char == "]":
            if not open_lists and text.strip():
                return []
            store()
            if len(open_lists) > 1:
                inner = open_lists.pop()
                open_lists[-1].append(inner)
            elif open_lists:
                closed = open_lists.pop()
        elif char == ",":
            if len(open_lists) > 1 and len(open_lists[-1]) >= 2 and text.strip():
                text += char
            else:
                store()
        elif not char.isspace():
            text += char
        elif text:
            text += " "
    if closed is not None:
        return closed
    store()
    while len(open_lists) > 1:
        inner = open_lists.pop()
        open_lists[-1].append(inner)
    return open_lists[0] if open_lists else []


def triplets(reply):
    """Lists of three with text at both ends; a list in the middle counts as its words."""

    def words(element):
        return element if isinstance(element, str) else " ".join(map(words, element))

    threes = [element for element in parse_reply(reply) if isinstance(element, list) and len(element) == 3]
    return [[h, words(r), t] for h, r, t in threes if isinstance(h, str) and isinstance(t, str)]


def word_list(name):
    """A list of the published code; the SDKs have theirs from the same file."""
    return set((pathlib.Path(__file__).parents[2] / "sdk/words" / name).read_text().split())


PRONOUNS = word_list("pronouns.txt")
STOP_WORDS = word_list("stop_words.txt")


def is_valid(triplet):
    return all(end.strip() and end.strip().lower() not in PRONOUNS for end in (triplet[0], triplet[2]))


def words_that_count(text):
    """Capitalised words; without any, words of more than two characters."""
    words = [word for word in text.replace(",", " ").split() if word.lower() not in STOP_WORDS]
    capitalised = [word for word in words if len(word) > 1 and word[0].isupper()]
    return capitalised or [word for word in words if len(word) > 2]


def content_words(entity):
    """Without any word that counts, the entity as it is."""
    return words_that_count(entity) or [entity.strip()]


def query(head, tail, relation=""):
    """Each word once, whatever its case; the query is the AND of them. `None` for fewer than two. A relation without
    words that count adds none."""
    words = {}
    for word in content_words(head) + content_words(tail) + words_that_count(relation):
        words.setdefault(word.lower(), word)
    return list(words.values()) if len(words) >= 2 else None


# Rules ----------------------------------------------------------------------------------------------------------------


def tier(count, thresholds=(5, 20), rewards=(-0.3, -0.1, 0.0, 0.1)):
    if count is None:
        return 0.0
    return rewards[0] if count == 0 else rewards[1 + sum(count >= threshold for threshold in thresholds)]


def score(rule, sentence_triplets, counts):
    """A sentence's reward under First, Min or RelCheck, its count, and the queries asked for. `counts` gives the number
    of a query, or `None` where it has none. RelCheck asks again only where the relation adds a word."""
    valid = [triplet for triplet in sentence_triplets if is_valid(triplet)]
    asked = []

    def count(words):
        asked.append(words)
        return counts(words)

    if rule == "min":
        numbers = [count(words) for head, _, tail in valid if (words := query(head, tail))]
        number = min((number for number in numbers if number is not None), default=None)
        return tier(number), number, asked
    words = query(valid[0][0], valid[0][2]) if valid else None
    number = count(words) if words else None
    reward = tier(number)
    if rule == "relcheck" and number is not None and number >= 20:
        related = query(valid[0][0], valid[0][2], valid[0][1])
        if related != words and count(related) == 0:
            reward = -0.05
    return reward, number, asked


# Returns, advantages, loss --------------------------------------------------------------------------------------------


def token_returns(judged, formatted, sigma, sentences, ablation, mean, lambdas):
    """R_t = λ_j R^j + λ_f R^f + 1[σ(t) > 0] λ_c r_σ(t). `sentences` are pairs (reward, whether a count decided it).

    A1 `no_cooccurrence`, A2 `no_judge`; A3 `response_level` pays every token the same, by one of four means.
    """
    lambda_judge, lambda_format, lambda_corver = lambdas
    base = (0.0 if ablation == "no_judge" else lambda_judge * judged) + lambda_format * formatted
    rewards = [reward for reward, _ in sentences]
    paid = [0.0 if index is None or not rewards else rewards[index] for index in sigma]
    if ablation == "response_level":
        averaged = {
            "over_sentences": rewards,
            "over_counted": [reward for reward, counted in sentences if counted],
            "token_weighted": paid,
            "total": rewards,
        }[mean]
        scalar = math.fsum(averaged) / (1 if mean == "total" else max(len(averaged), 1))
        paid = [scalar] * len(sigma)
    elif ablation == "no_cooccurrence":
        paid = [0.0] * len(sigma)
    return [base + lambda_corver * reward for reward in paid]


def advantages(returns, group_size, scale):
    """A_t = (R_t − mean) / (std + 1e-4), where mean and unbiased std are those of the completions' mean returns."""

    def mean(values):
        return math.fsum(values) / len(values) if values else 0.0

    def std(values):
        squares = [(value - mean(values)) ** 2 for value in values]
        return math.sqrt(math.fsum(squares) / (len(values) - 1)) if len(values) > 1 else 0.0

    means = [mean(row) for row in returns]
    rows = []
    for index, row in enumerate(returns):
        first = index - index % group_size
        group = means[first : first + group_size]
        divisor = {"group": std(group) + 1e-4, "batch": std(means) + 1e-4, "none": 1.0}[scale]
        rows.append([(value - mean(group)) / divisor for value in row])
    return rows


def loss(new, old, ref, advantage, beta, low, high, delta, loss_type, level, max_length):
    """Clipped surrogate with k3 as the KL term, of `[B][T]` log-probabilities and advantages. A row without tokens is a
    completion too. `bnpo` and `dapo` differ only where a step has several batches; here it has one."""
    row_losses = []
    for n, o, r, a in zip(new, old, ref, advantage):
        log_ratios = [x - y for x, y in zip(n, o)]
        if level == "sequence":
            log_ratios = [math.fsum(log_ratios) / max(len(n), 1)] * len(n)
        total = []
        for t, log_ratio in enumerate(log_ratios):
            ratio = math.exp(log_ratio)
            clipped = min(max(ratio, 1 - low), 1 + high)
            ratio = ratio if delta is None else min(ratio, delta)
            k3 = math.exp(r[t] - n[t]) - (r[t] - n[t]) - 1
            total.append(-min(ratio * a[t], clipped * a[t]) + beta * k3)
        row_losses.append(math.fsum(total))
    lengths = [len(row) for row in new]
    if loss_type == "grpo":
        return math.fsum(x / max(n, 1) for x, n in zip(row_losses, lengths)) / len(new)
    return math.fsum(row_losses) / (len(new) * max_length if loss_type == "dr_grpo" else max(sum(lengths), 1))


def gradient(new, *arguments, step=1e-5):
    """∂loss/∂new by central differences."""

    def moved(row, at, by):
        copy = [list(values) for values in new]
        copy[row][at] += by
        return loss(copy, *arguments)

    places = [(row, at) for row, values in enumerate(new) for at in range(len(values))]
    return [(moved(row, at, step) - moved(row, at, -step)) / (2 * step) for row, at in places]


# Counts ---------------------------------------------------------------------------------------------------------------


def streams(documents, shards, separator):
    """The documents are dealt to the shards in turn; each begins with the separator."""
    dealt = [documents[shard::shards] for shard in range(shards)]
    return [[token for document in shard for token in [separator, *document]] for shard in dealt]


def starts(stream, term):
    return [at for at in range(len(stream) - len(term) + 1) if stream[at : at + len(term)] == term]


def count_unsampled(shards, cnf, window, ends_document):
    """The engine's count without sampling. Each occurrence of the rarest clause is a range [l, r]. Every further
    clause, rarest first, widens it by its nearest occurrences that begin before r and from l on, as far as these are at
    most `window` away from the range. Ranges without either, and those in which a document ends, do not count."""
    total = 0
    for stream in shards:
        clauses = sorted(([at for term in clause for at in starts(stream, term)] for clause in cnf), key=len)
        ranges = [(at, at) for at in clauses[0]]
        for clause in clauses[1:]:
            wider = []
            for left, right in ranges:
                near = [max((at for at in clause if at < right), default=None)]
                near.append(min((at for at in clause if at >= left), default=None))
                near = [at for at in near if at is not None and left - window <= at <= right + window]
                if near:
                    wider.append((min(left, *near), max(right, *near)))
            ranges = wider
        total += sum(not ends_document(stream[left:right]) for left, right in ranges)
    return total


def count_exact(documents, cnf, window):
    """The positions where the rarest clause begins, the first of several equally rare ones, and where every clause
    begins at most `window` away in the same document."""
    begins = [[{at for term in clause for at in starts(document, term)} for clause in cnf] for document in documents]
    numbers = range(len(cnf))
    rarest = min(numbers, key=lambda number: sum(len(clauses[number]) for clauses in begins))
    return sum(
        all(any(abs(at - other) <= window for other in clause) for clause in clauses)
        for clauses in begins
        for at in clauses[rarest]
    )


def count_spans(documents, cnf, window):
    """Runs of at most `window` tokens of one document that hold a term of every clause and no shorter such run."""
    found = 0
    for document in documents:

        def holds(left, right):
            return all(any(starts(document[left:right], term) for term in clause) for clause in cnf)

        for left in range(len(document)):
            for right in range(left + 1, min(left + window, len(document)) + 1):
                inner = holds(left + 1, right) or holds(left, right - 1)
                found += holds(left, right) and not inner
    return found


if __name__ == "__main__":
    import inputs

    inputs.main()
