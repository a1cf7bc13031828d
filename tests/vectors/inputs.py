"""The inputs of the vectors, hand-written and seeded, and the writing of the files."""

import json
import pathlib
import random
import sys

import reference as ref

HERE = pathlib.Path(__file__).parent
DRAW = random.Random()  # seeded with the file's name, for each file


def below(limit):
    return int(DRAW.random() * limit)  # every version of Python draws the same numbers


def pick(things):
    return things[below(len(things))]


def some(things, low, high):
    return [pick(things) for _ in range(low + below(high - low + 1))]


# Text -----------------------------------------------------------------------------------------------------------------

PLACES = ["Port Elsin", "Old Tarrow", "Vyre", "the Isle of Quenn", "Łomsk-Mare", "Saint Ödel"]
PEOPLE = ["Orla Venn", "Tasmir Quoll", "Zoë Brünn", "Dr. Ilse Marrow", "J. K. Ostry", "O'Dell Finch"]
WORKS = ["The Glass Orchard", "Nine Lanterns", "A Winter in Vyre", "Ember & Salt", "Şehir Üç", "Ⅷ Bells"]
VERBS = ["wrote", "was born in", "directed", "is", "moved to", "never saw"]
THINGS = PLACES + PEOPLE + WORKS
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u001c", "\u2028"]
ENDS = [".", "!", "?", "...", ".”", ":", "。", ""]

SENTENCES = [
    "",
    " \n\t ",
    "...",
    "Vyre",
    "Orla Venn wrote Nine Lanterns. It won a prize!\nDid it? Yes",
    "Dr. Ilse Marrow weighs 3.5 kg. J. K. Ostry does not.",
    "“Stop.” Then she left.” And so on.”",
    "No end here\nand none there",
    "a.b.c . d .\u001ce",
    "Wait?! No... maybe. \u200b.  x",
]
COMPLETIONS = [
    "",
    " \n ",
    "Tasmir Quoll lives in Vyre. He writes.",
    "<think>Tasmir Quoll lives in Vyre. He writes.</think><answer>Vyre</answer>",
    "<think>\n  Orla Venn left.  She came back!\n</think>\n\n<answer> Port Elsin. </answer>\n",
    "<think>Vyre is old. Vyre is wet.</think><answer>Vyre is old.</answer>",
    "<think>The text was cut off. It ends he",
    "<think>No closing tag. <answer>Vyre",
    "The prompt opened the block. So it is.</think><answer>Vyre</answer>",
    "<answer>Vyre</answer> and <think>Then a reason. Late.</think>",
    "<answer>Vyre <think>Then a reason.</think>",
    "<think>An answer <answer>inside</answer> the block. Odd.</think>",
    "<think>One.</think><think>Two.</think><answer>A</answer><answer>B</answer>",
    "<think></think><answer></answer>",
    "<think> </think><answer>Vyre.</answer>",
    "before <think>Inside. More.</think> between <answer>Vyre</answer> after. End.",
    "Vyre. <think>Vyre.</think><answer>Vyre.</answer>",
    "<think>A <think> within. B.</think> C <answer>D</answer>",
    "</answer>x. y</answer>",
    "</think><answer>only",
    "<answer>x</answer></think>",
    "a</think>b <think>c. d</think> e",
    "<think>Łomsk-Mare is a 城市。 It is 🏰. Really?</think><answer>Saint O\u0308del</answer>",
]


def sentence():
    words = f"{pick(THINGS)} {pick(VERBS)} {pick(THINGS)}"
    return words.replace(" ", pick(SPACES), below(2)) + pick(ENDS)


def prose(most):
    return "".join(sentence() + pick(SPACES) for _ in range(1 + below(most)))


def spoiled(parts, strange, most):
    """With up to `most` parts missing, doubled or replaced by something strange."""
    for _ in range(pick([0, *range(most + 1)])):
        place = below(len(parts))
        parts[place : place + 1] = pick([[], [parts[place]] * 2, [pick(strange)]])
    return parts


def completion():
    """Mostly both blocks, sometimes with a tag missing, doubled or misplaced."""
    parts = [pick(["", prose(1)]), "<think>", prose(2), "</think>", pick(SPACES), "<answer>", prose(1), "</answer>"]
    return "".join(spoiled(parts, ["<think>", "</think>", "<answer>", "</answer>"], 2))


def tokens(text):
    """Spans of tokens of 1 to 9 characters that cover the text; tokens without any text among them."""
    spans, start = [], 0
    while start < len(text):
        end = min(len(text), start + 1 + below(11))
        spans += ([None] if DRAW.random() < 0.03 else []) + [(start, end)]
        start = end
    return spans


def drifting(spans):
    """The same tokens as the published code places them: one after the other, some a character longer or shorter."""
    end, moved = 0, []
    for span in spans:
        length = max(0, span[1] - span[0] + pick([0, 0, 0, 0, -1, 1])) if span else 0
        moved.append((end, end + length) if length else None)
        end += length
    return moved


def sentences():
    for text in SENTENCES + [prose(4) for _ in range(20)]:
        yield {"text": text, "sentences": ref.split_sentences(text)}


def alignment():
    readings = ("paper", ref.split_paper, lambda spans: spans), ("reference", ref.split_published, drifting)
    for text in COMPLETIONS + [completion() for _ in range(20)]:
        exact = tokens(text)
        case = {"completion": text}
        for name, split, placed in readings:
            spans = placed(exact)
            found, sections = split(text)
            sigma, rate = ref.align(found, sections, spans)
            case[name] = {"tokens": spans, "sentences": found, "sections": sections, "sentence_of": sigma, "rate": rate}
        yield case


# Judge and format -----------------------------------------------------------------------------------------------------

ANSWERS = [
    ("Vyre", "Vyre"),
    ("the  VYRE!", "vyre"),
    ("It is Port Elsin, of course.", "Elsin; Old Tarrow"),
    ("Elsin", "Port Elsin"),
    ("Old Tarrow", "Vyre;Elsin ; "),
    ("I don't know", "know"),
    (" I DO NOT KNOW\n", "know"),
    ("I don\u2019t know", "know"),
    ("I don't know.", "Vyre"),
    ("", "Vyre"),
    ("...", "Vyre"),
    ("a", "Vyre"),
    ("the", "the"),
    ("Vyre", ";;"),
    ("Vyre", "!; the"),
    ("Zoe\u0308 Brünn", "Zoë Bru\u0308nn"),
    ("Zoe Brunn", "Zoë Brünn"),
    ("Dvořák á l’été", "dvor k"),
    ("ﬁlm № ５", "film No 5"),
    ("snake_case", "snake case"),
    ("İZMİR ΣΑΣ", "i̇zmi̇r σας"),
    ("½ Ⅷ x²", "1⁄2 viii x2"),
    ("城市", "城"),
]
REASON = "Orla Venn wrote it, so it is hers."
FORMATS = [
    f"<think>{REASON}</think><answer>Vyre</answer>",
    f"<think>{REASON}</think>\n<answer>Vyre",
    f"{REASON}</think><answer>Vyre</answer>",
    f"<think>{REASON}<answer>Vyre</answer>",
    f"\n<think>{REASON}</think><answer>Vyre</answer>",
    f"<think>\n \u3000{REASON}</think><answer>Vyre</answer>",
    f"<think>{REASON}</think> outside <answer>Vyre</answer>",
    f"<think>{REASON}</think></think><answer>Vyre</answer>",
    f"<think></think>{REASON}<answer>Vyre</answer>",
    f"<think>x</think>{REASON}<answer>Vyre</answer>",
    f"<think><b>{REASON}</b></think><answer>Vyre</answer>",
    f"<think>{REASON}</think><answer></answer>",
    f"<think>{REASON}</think><answer>",
    f"<think>{REASON}</think><answer> \n ",
    f"<think>{REASON}</think><answer>x<answer>y",
    f"<think>{REASON}</think><answer><answer>y",
    f"<think>{REASON}</think><answer>x<think>y",
    f"<think>{REASON}<think></think><answer>x",
    f"<think>{REASON}</think>",
    f"<answer>Vyre</answer><think>{REASON}</think>",
    "<think>unknown</think><answer>I don't know</answer>",
    "<think>Орла Венн написала эту книгу в 1904 году.</think><answer>Vyre</answer>",
    "<think>" + "7" * 30 + "</think><answer>x</answer>",
    "<think>" + "7" * 22 + "</think><answer>x</answer>",
    f"<answer>Vyre</answer><think>{REASON}</think><answer>Vyre</answer>",
    f"So: <think>{REASON}</think> and so <answer>Vyre</answer> then",
    f"<think>{REASON}<answer>x</answer></think><answer>Vyre</answer>",
    f"<think>\n <{REASON}</think><answer>Vyre</answer>",
    "<think>" + "7" * 29 + "г</think><answer>x</answer>",
    "<think>" + " " * 29 + "v</think><answer>x</answer>",
    "",
    "<think>",
]
TAILS = ["", "</think>", "   ", " </think> "]
FORMATS += [f"<think>{'v' * length}{tail}<answer>x" for length in (21, 22, 29, 30) for tail in TAILS]


def grades():
    texts = [f"<think>{REASON}</think><answer>{answer}</answer>" for answer, _ in ANSWERS]
    texts += [answer for answer, _ in ANSWERS]
    texts += [f"<answer> {answer} </answer> so it is" for answer, _ in ANSWERS]
    cases = list(zip(texts, [golds for _, golds in ANSWERS] * 3))
    cases += [(text, "Vyre") for text in FORMATS] + [(completion(), pick(THINGS)) for _ in range(15)]
    for text, golds in cases:
        case = {"completion": text, "golds": golds}
        for rule in ref.ANSWER_RULES:
            answer, label = ref.extract_answer(text, rule), ref.judge(text, golds, rule)
            case[rule] = {"answer": answer, "normalized": ref.normalize(answer)}
            case[rule] |= {"label": label, "judge": ref.JUDGE_REWARD[label]}
        case["format"] = {"paper": ref.format_paper(text), "reference": ref.format_published(text)}
        yield case


# Triplets and words ---------------------------------------------------------------------------------------------------

REPLIES = [
    "",
    "[]",
    "no list",
    "no list]",
    "]",
    '[["Orla Venn", "wrote", "Nine Lanterns"]]',
    'entities: [["Orla Venn", "wrote", "Nine Lanterns"], ["Nine Lanterns", "set in", "Vyre"]]',
    'entities:entities: [["A", "r", "B"]]',
    'Entities: [["A", "r", "B"]]',
    '[["Who wrote it", "author"]]',
    '[["A", "r", "B", "C"]]',
    '[["A", "r", "B",]]',
    '[["A", "", "B"]]',
    '[["A", "r", "B"], ["C", "s", "D"',
    '[["A", "r", "B"]] [["C", "s", "D"]]',
    '[["A", "r", "B"]] [["C", "s", "D"',
    '["A", "r", "B"]',
    '[["A", ["born", ["in"]], "B"], [["A"], "r", "B"]]',
    '[["A, the [first]", "r", "B"]]',
    r'[["say \"yes\"", "a\nb", "c\\d"]]',
    "[[“Orla Venn”, “wrote”, “Nine ”Lanterns”]]",
    "[[Orla  Venn,\twrote\n, Nine Lanterns ]]",
    '[["left" over, "r", un"quo"ted]]',
    '[["never closed, "r", "B"]]',
    '[[["A", "r", "B"]]]',
    '[["A", "r", "B"]]]',
    '[["A", "r", "B"]] and more]',
    "[[,,]]",
    '[[" ", "r", "\u3000"]]',
]
ENTITIES = THINGS + ["", " ", "a", "it", "AND", "A OR B", "x y", "of AND to", "the second battle", "1967"]
ENTITIES += ["June 5, 1967", "(film)", "Vyre, Old", "ÉCOLE", "éc ol", "ßx Straße", "ǅungla ⅷx Ⅷx", "The The"]
ENTITIES += ["theory of Orla Venn", "so is it", "VYRE vyre", "a\u001cbc"]
SUBJECTS = ["he", " THEM ", "Himself", "the", "nobody", "İt", "one"]
RELATIONS = VERBS + ["", " ", "wrote in Vyre", "Director of", "has"]


def reply():
    strange = ["[", "]", '"', ",", " ", "x", "[[", "]]", "“", "”", "\\"]
    elements = [part for name in some(THINGS, 2, 4) for part in ('"', name, '"', ", ")]
    parts = ["[[", *elements[:-1], "]", ", ", "[", "Vyre", ", ", "is", ",", *pick(THINGS).split(), "]]"]
    return "".join(spoiled(parts, strange, 4))


def replies():
    for text in REPLIES + [reply() for _ in range(30)]:
        yield {"reply": text, "elements": ref.parse_reply(text), "triplets": ref.triplets(text)}


def words():
    listed = [f"{word.title()} Vyre" for word in sorted(ref.STOP_WORDS)] + sorted(ref.PRONOUNS)
    for entity in ENTITIES + SUBJECTS + listed:
        yield {"entity": entity, "words": ref.content_words(entity), "pronoun": entity.strip().lower() in ref.PRONOUNS}


def rules():
    """The paper's example, and sentences of up to four triplets in a corpus of few numbers, some of them unknown."""
    directed, starred = ["Mario Camerini", "directed", "Il Seduttore"], ["Il Seduttore", "starred", "Sophia Loren"]
    liar = ["Sophia Loren", "directed", "Il Seduttore"]
    pair = "Mario Camerini Il Seduttore".split()
    example = {tuple(pair): 50, (*pair, "directed"): 12, tuple("Il Seduttore Sophia Loren".split()): 0}
    false = {tuple("Sophia Loren Il Seduttore".split()): 20, tuple("Sophia Loren Il Seduttore directed".split()): 0}
    empty = ["Sophia Loren", "was for", "Il Seduttore"]
    cases = [([directed, starred], example), ([liar], false), ([empty], false)]
    for length in range(45):
        triplet_list = [[pick(ENTITIES + SUBJECTS), pick(RELATIONS), pick(ENTITIES)] for _ in range(length % 5)]
        cases.append((triplet_list, None))
    for triplets, known in cases:
        corpus = {}

        def counts(query):
            query = tuple(query)
            corpus.setdefault(query, known[query] if known else pick([None, 0, 0, 1, 4, 5, 19, 20, 90]))
            return corpus[query]

        outcomes = {}
        for rule in ("first", "min", "relcheck"):
            reward, count, asked = ref.score(rule, triplets, counts)
            outcomes[rule] = {"reward": reward, "count": count, "asked": asked}
        yield {"triplets": triplets, "counts": [[list(query), count] for query, count in corpus.items()]} | outcomes


# Returns, advantages, loss --------------------------------------------------------------------------------------------


def returns():
    ablations = [("none", None), ("no_cooccurrence", None), ("no_judge", None)]
    ablations += [("response_level", mean) for mean in ("over_sentences", "over_counted", "token_weighted", "total")]
    for number in range(4 * len(ablations)):
        ablation, mean = ablations[number % len(ablations)]
        sentences = [(ref.tier(count), count is not None) for count in some([None, 0, 3, 7, 40], 0, 4)]
        sigma = sorted(some([None, *range(len(sentences))], 0, 12), key=lambda index: -1 if index is None else index)
        case = {"judge": pick([2.0, -1.0]), "format": pick([1.0, -1.0]), "sentence_of": sigma, "sentences": sentences}
        case |= {"ablation": ablation, "mean": mean or "over_sentences"}
        case["lambdas"] = [1.0, 1.0, 1.0] if number < len(ablations) else some([1.0, 0.3, 2.0], 3, 3)
        yield case | {"returns": ref.token_returns(*case.values())}


def advantages():
    same_means = [[3.0, 3.1, 2.9], [3.0], [2.7, 3.3], [3.0]]
    groups = [(2, [[1.0, 3.0], [4.0], [7.0], [7.0, 7.0]]), (4, same_means), (2, [[], [1.0], [], []])]
    for size in (2, 4, 5):
        levels = [3.0, 3.1, 2.7, 2.9, 0.0, -2.0, -2.3]
        groups.append((size, [some(levels, 0 if row == 1 else 1, 6) for row in range(2 * size)]))
    for size, rows in groups:
        for scale in ("group", "batch", "none"):
            case = {"returns": rows, "num_generations": size, "scale_rewards": scale}
            yield case | {"advantages": ref.advantages(*case.values())}


def losses():
    def near(rows, spread):
        return [[round(value + (2 * DRAW.random() - 1) * spread, 4) for value in row] for row in rows]

    for number in range(16):
        kind = ("grpo", "bnpo", "dr_grpo", "dapo")[number % 4]
        level = "sequence" if number // 4 == 2 else "token"
        low, high, delta = (0.2, 0.28, 1.5) if number // 4 == 3 else (0.2, 0.2, None)
        lengths = [1 + below(5) for _ in range(3)] + ([0] if number % 3 == 0 else [])
        new = near([[-1.5] * length for length in lengths], 1.4)
        case = {"new": new, "old": near(new, 0.5), "ref": near(new, 0.7)}
        case["advantages"] = near([[0.0] * length for length in lengths], 2.0)
        settings = {"beta": (0.04, 0.001, 0.0)[number % 3], "epsilon_low": low, "epsilon_high": high, "delta": delta}
        settings |= {"loss_type": kind, "importance_sampling_level": level}
        arguments = (*case.values(), *settings.values(), max_length := 8)
        slopes = [round(slope, 8) for slope in ref.gradient(*arguments)]
        case |= {"settings": settings, "max_length": max_length}
        yield case | {"loss": ref.loss(*arguments), "gradient": slopes}


# Counts ---------------------------------------------------------------------------------------------------------------


def index(name, width, shards, documents, asked):
    """One index and its queries: `exact` and `span` counts, `compatible` where no clause is sampled."""
    separator = 256**width - 1
    streams = ref.streams(documents, shards, separator)

    def ends_in_bytes(tokens):
        return b"\xff" * width in b"".join(token.to_bytes(width, "little") for token in tokens)

    queries = []
    for cnf, window in asked:
        exact = ref.count_exact(documents, cnf, window)
        compatible = ref.count_unsampled(streams, cnf, window, ends_in_bytes)
        span = ref.count_spans(documents, cnf, window)
        queries.append({"cnf": cnf, "window": window, "exact": exact, "compatible": compatible, "span": span})
    terms = {tuple(term): None for cnf, _ in asked for clause in cnf for term in clause}
    ngrams = [[term, sum(len(ref.starts(stream, list(term))) for stream in streams)] for term in terms]
    case = {"name": name, "width": width, "shards": shards, "documents": documents}
    return case | {"ngrams": ngrams, "queries": queries}


def clauses(words, phrases):
    def term():
        return [pick(words)] if DRAW.random() < 0.7 else pick(phrases)

    return [[term() for _ in range(pick([1, 1, 1, 2, 3]))] for _ in range(pick([1, 2, 2, 2, 3, 4]))]


def counts():
    # Short articles of the made-up world; a word's id is its place in the vocabulary.
    ids = {word: number for number, word in enumerate(sorted(set(" ".join(THINGS + VERBS).split())))}
    names = [[ids[word] for word in name.split()] for name in THINGS]
    verbs = [[ids[word] for word in verb.split()] for verb in VERBS]
    documents = [[] for _ in range(24)]
    for document in documents:
        for _ in range(3 + below(6)):
            document += pick(names[:9]) + pick(verbs) + pick(names[6:])
    asked = [([[pick(names)], [pick(names)]], pick([1, 4, 12, 1000])) for _ in range(25)]
    asked += [(clauses(list(ids.values()), names), pick([1, 3, 8, 30])) for _ in range(25)]
    for shards in (1, 3):
        yield index(f"articles in {shards} shards", 2, shards, documents, asked)

    # Few tokens, so that n-grams repeat and overlap. Their bytes sort unlike their numbers, and 0xFF41 before 0x12FF
    # looks like a separator to a search by bytes.
    for width, alphabet, shards in (
        (1, [0, 1, 7, 254], 1),
        (2, [1, 2, 256, 511], 2),
        (2, [3, 0xFF41, 0x12FF], 1),
        (4, [1, 256, 65_536, 128_000], 2),
    ):
        documents = [some(alphabet, 0, 25) for _ in range(7)]
        phrases = [some(alphabet, 2, 3) for _ in range(6)]
        asked = [(clauses(alphabet, phrases), 1 + below(20)) for _ in range(20)]
        yield index(f"{len(alphabet)} tokens of {width} bytes", width, shards, documents, asked)

    # Worked by hand: a neighbour in the next document spoils a match of `compatible`; what a clause finds in itself;
    # spans of `a b a` and `a a b`.
    edge = [([[[10]], [[20]]], 50), ([[[10]], [[20]]], 2), ([[[20]], [[20]]], 9)]
    yield index("neighbours", 2, 1, [[20, 30], [10, 20, 40], [10, 20, 10], [10, 10, 20], []], edge)


# Files ----------------------------------------------------------------------------------------------------------------

FILES = {
    "sentences": (sentences, "text, and its sentences"),
    "alignment": (alignment, "completion and token spans, and sentences, sections, σ and the rate"),
    "grades": (grades, "completion and golds, and the judge's and the format check's rewards"),
    "replies": (replies, "the extractor's reply, and its elements and triplets"),
    "words": (words, "entity, and its content words"),
    "rules": (rules, "a sentence's triplets and the corpus's counts, and what each rule asks and pays"),
    "returns": (returns, "rewards of a completion, and its tokens' returns"),
    "advantages": (advantages, "returns, and advantages"),
    "losses": (losses, "log-probabilities and advantages, and loss and gradient"),
    "counts": (counts, "documents as token ids, and counts of n-grams and CNF queries"),
}


def rounded(value):
    """Twelve digits, so that the last bit of a platform's `exp` does not show."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def main():
    check = "--check" in sys.argv[1:]
    for name, (cases, what) in FILES.items():
        DRAW.seed(name)
        lines = ",\n".join(json.dumps(rounded(case), separators=(",", ":")) for case in cases())
        text = f'{{"made_by": "python3 tests/vectors/reference.py: {what}",\n"cases": [\n{lines}\n]}}\n'
        path = HERE / f"{name}.json"
        if not check:
            path.write_text(text)
            print(f"{path.name}: {lines.count(chr(10)) + 1} cases, {len(text)} bytes")
        elif path.read_text() != text:
            sys.exit(f"{path} is not what reference.py writes")
