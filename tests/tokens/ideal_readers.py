"""A second opinion on D1 and D8: reads token by token, checks every rule, says what tokens cost.

Written against the description of the corpora, with dicts and a walk from left to right; shares the
languages with the generators, but no code. A reader yields (class, nats) for each token.
"""

from collections import Counter, defaultdict
from math import log

from engram_lab.tokens.synthetic import (
    PhrasebookConfig,
    TwoCapacitiesConfig,
    phrase_book,
    token_strings,
    two_capacities_language,
)


def read_capacities(config: TwoCapacitiesConfig, documents):
    """Yields a list of (class, nats) for each document of D8."""
    language, names = two_capacities_language(config), token_strings(config)
    pairs, heads, completions = Counter(), Counter(), {}
    for phrase, probability in zip(
        language.phrases.tolist(), language.pair_probability.tolist(), strict=True
    ):
        a, b, *rest = (names[i] for i in phrase)
        pairs[a, b] += probability
        heads[a] += probability
        completions[a, b] = rest
    answers = [[names[i] for i in row] for row in language.key_map.tolist()]
    phrase_rate, chain_rate = config.static_share / 4, (1 - config.static_share) / 3
    start_phrase = phrase_rate / (phrase_rate + chain_rate)
    for document in documents:
        topic, *body, end = (names[i] for i in document.tolist())
        assert topic.startswith("topic") and end == "<eos>"
        f = answers[int(topic.removeprefix("topic"))]
        read = [("filler", log(config.topics))]
        while body:
            item, body = (body[:4], body[4:]) if body[0][0] == "a" else (body[:3], body[3:])
            if item[0][0] == "a":
                a, *pair = item
                read.append(("filler", -log(start_phrase * heads[a])))
                if pair:
                    b, *rest = pair
                    read.append(("filler", -log(pairs[a, b] / heads[a])))
                    assert rest == completions[a, b][: len(rest)]
                    read += [("static", 0.0)] * len(rest)
            else:
                read.append(("filler", -log((1 - start_phrase) / config.keys)))
                for key, answer in zip(item, item[1:], strict=False):
                    assert answer == f[int(key.removeprefix("k"))]
                    read.append(("computed", 0.0))
        yield [*read, ("filler", 0.0)]


def read_phrasebook(config: PhrasebookConfig, documents):
    """Yields a list of (class, nats) for each document of D1."""
    names = token_strings(config)
    openings, whole = Counter(), set()
    book = phrase_book(config)
    for ids, length, probability in zip(
        book.phrases.tolist(), book.lengths.tolist(), book.probability.tolist(), strict=True
    ):
        phrase = tuple(names[i] for i in ids[:length])
        whole.add(phrase)
        for end in range(length + 1):
            openings[phrase[:end]] += probability
    kinds = kind_probabilities(config)
    for document in documents:
        body = [names[i] for i in document.tolist()]
        assert body.pop() == "<eos>"
        read, slots = [], {}
        for slot in range(config.copy_slots if kinds["copy"] else 0):
            name, *words = body[: 1 + config.copy_length]
            assert name == f"slot{slot}" and all(word[0] == "w" for word in words)
            slots[name] = words
            read += [("filler", 0.0)] + [("filler", log(config.words))] * len(words)
            body = body[1 + config.copy_length :]
        while body:
            span, size = read_span(config, body, slots, (openings, whole))
            kind = {"+": "sum", "(": "bracket", "@": "copy"}.get(body[0], "phrase")
            span[0] = (span[0][0], span[0][1] - log(kinds[kind]))
            read += span
            body = body[size:]
        yield [*read, ("filler", 0.0)]


def read_span(config, body, slots, book):
    """(class, nats) of the span that opens the body, and its length; a span may be cut."""
    if body[0] == "+":
        digits = body[1 : 1 + config.sum_digits]
        read = [("filler", 0.0)] + [("filler", log(config.modulus))] * len(digits)
        rest = body[1 + config.sum_digits : 3 + config.sum_digits]
        assert rest == ["=", str(sum(map(int, digits)) % config.modulus)][: len(rest)]
        read += [("filler", 0.0), ("computed", 0.0)][: len(rest)]
    elif body[0] == "@":
        words = body[2 : 2 + config.copy_length]
        assert not words or words == slots[body[1]][: len(words)]
        read = [("filler", 0.0), ("filler", log(config.copy_slots))][: len(body)]
        read += [("computed", 0.0)] * len(words)
    elif body[0] == "(":
        read, depth = [], 0
        for bracket in body[: config.bracket_steps]:
            read.append(("filler", log(2) if depth else 0.0))
            depth += {"(": 1, ")": -1}[bracket]
            assert depth >= 0
        rest = body[config.bracket_steps :][: depth + 2]
        assert rest == [";", *")" * depth, ";"][: len(rest)]
        read += [("filler", 0.0), *[("computed", 0.0)] * (depth + 1)][: len(rest)]
    else:
        openings, whole = book
        read = []
        for end, word in enumerate(body, start=1):
            before, now = openings[tuple(body[: end - 1])], openings[tuple(body[:end])]
            assert now > 0, f"no phrase opens with {body[:end]} ({word})"
            read.append(("static" if read else "filler", -log(now / before)))
            if tuple(body[:end]) in whole:
                break
    return read, len(read)


def kind_probabilities(config: PhrasebookConfig) -> dict[str, float]:
    """How often each kind of span starts, from token shares and mean lengths."""
    depths = {0: 1.0}
    for _ in range(config.bracket_steps):
        moved = defaultdict(float)
        for depth, probability in depths.items():
            for step in (1, -1) if depth else (1,):
                moved[depth + step] += probability / (2 if depth else 1)
        depths = moved
    book = phrase_book(config)
    mean_length = {
        "phrase": float(book.lengths @ book.probability),
        "sum": config.sum_digits + 3,
        "bracket": config.bracket_steps + 2 + sum(d * p for d, p in depths.items()),
        "copy": config.copy_length + 2,
    }
    weights = (config.sum_weight, config.bracket_weight, config.copy_weight)
    dynamic = [(1 - config.static_share) * w / (sum(weights) or 1) for w in weights]
    rates = dict(zip(mean_length, (config.static_share, *dynamic), strict=True))
    rates = {kind: rate / mean_length[kind] for kind, rate in rates.items()}
    return {kind: rate / sum(rates.values()) for kind, rate in rates.items()}
