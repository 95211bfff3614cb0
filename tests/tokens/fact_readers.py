"""A second opinion on D3, D4 and D5: reads token by token, checks the rules, says what tokens cost.

Written against the description of the corpora with dicts and walks from left to right. The readers
of D3 and D5 yield a list of (class, nats) for each document; that of D4 yields (class, None), since
what its tokens cost is checked by counting documents instead.
"""

from collections import Counter, defaultdict
from math import log

from engram_lab.tokens.synthetic import (
    FactbookConfig,
    NeedlesConfig,
    PolysemyConfig,
    fact_book,
    needles_language,
    polysemy_language,
    token_strings,
)


def read_factbook(config: FactbookConfig, documents):
    names, book = token_strings(config), fact_book(config)
    openings, whole, facts, asked = Counter(), set(), {}, defaultdict(set)
    for row in range(config.entities):
        name = tuple(names[i] for i in book.names[row, : book.lengths[row]])
        whole.add(name)
        for end in range(len(name) + 1):
            openings[name[:end]] += book.probability[row]
        for relation in range(config.relations):
            facts[name, f"r{relation}"] = names[book.values[row, relation]]
            if book.asked[row, relation]:
                asked[name].add(f"r{relation}")
    endings = {name[-2:] for name in whole}
    mean = float(book.lengths @ book.probability)
    static, questions = config.static_share, config.question_share
    rates = {
        "statement": static * (1 - questions) / (mean + 2),
        "?": static * questions / (mean + 3),
        "[": (1 - static) / (1 + 9 * config.passage_facts),
    }
    start = {kind: rate / sum(rates.values()) for kind, rate in rates.items()}

    def fact(body, relation_nats):
        """(class, nats) of a fact of the book, perhaps cut, its name and its relation."""
        read, name = [], ()
        while body and name not in whole:
            longer = (*name, body.pop(0))
            assert openings[longer] > 0
            read.append(("filler", log(openings[name] / openings[longer])))
            name = longer
        relation = body.pop(0) if body else None
        if relation:
            read.append(("filler", relation_nats(name)))
        if body:
            assert body.pop(0) == facts[name, relation]
            read.append(("static", 0.0))
        return read, name, relation

    def passage(body):
        read, told = [], {}
        for place in range(config.passage_facts):
            parts, body[:4] = body[:4], []
            costs = [log(config.words - place), 0, log(config.relations - place)]
            costs.append(log(config.values))
            if len(parts) > 1:
                assert tuple(parts[:2]) not in endings
                known = sum(parts[0] == first for first, _ in endings)
                costs[1] = log(config.words - known)
            read += [("filler", cost) for cost in costs[: len(parts)]]
            told[tuple(parts[:3])] = parts[3:]
        for place in (0, 2):  # other first words, other relations
            parts = [key[place] for key in told if len(key) > place]
            assert len(set(parts)) == len(parts)
        for left in range(config.passage_facts, 0, -1):
            rest, body[:5] = body[:5], []
            assert rest[:1] in ([], ["?"]) and (len(rest) < 4 or tuple(rest[1:4]) in told)
            assert len(rest) < 5 or [rest[4]] == told.pop(tuple(rest[1:4]))
            read += [("filler", cost) for cost in [0.0, log(left), 0.0, 0.0][: len(rest)]]
            read += [("computed", 0.0)] * (len(rest) == 5)
        return read

    for document in documents:
        body = [names[i] for i in document.tolist()]
        assert body.pop() == "<eos>"
        read = []
        while body:
            kind = body[0] if body[0] in rates else "statement"
            if kind != "statement":
                body.pop(0)
            if kind == "statement":
                item, _, _ = fact(body, lambda _: log(config.relations))
            elif kind == "?":
                item, name, relation = fact(body, lambda name: log(len(asked[name])))
                assert relation is None or relation in asked[name]
            else:
                item = passage(body)
            if kind != "statement":
                item.insert(0, ("filler", 0.0))
            item[0] = (item[0][0], item[0][1] - log(start[kind]))
            read += item
        yield [*read, ("filler", 0.0)]


def read_polysemy(config: PolysemyConfig, documents):
    names, language = token_strings(config), polysemy_language(config)
    weights = [rank**-config.zipf for rank in range(1, config.phrases + 1)]
    pairs, heads = defaultdict(Counter), defaultdict(Counter)
    home, own = {}, {}
    for topic in range(config.topics):
        mass = Counter()
        for rank, weight in enumerate(weights):
            mass[language.home[rank] == topic] += weight
        for rank, weight in enumerate(weights):
            a, b = (names[i] for i in language.openings[rank])
            at_home = language.home[rank] == topic
            share = config.static_share if at_home else 1 - config.static_share
            pairs[topic][a, b] += share * weight / mass[at_home]
            heads[topic][a] += share * weight / mass[at_home]
            home[a, b] = int(language.home[rank])
            own[a, b] = [names[i] for i in language.own[rank]]
    for document in documents:
        topic, *body, end = (names[i] for i in document.tolist())
        assert topic.startswith("topic") and end == "<eos>"
        topic = int(topic.removeprefix("topic"))
        read = [("filler", log(config.topics))]
        while body:
            item, body = body[:4], body[4:]
            read.append(("filler", -log(heads[topic][item[0]])))
            if len(item) > 1:
                pair = tuple(item[:2])
                read.append(("filler", log(heads[topic][item[0]] / pairs[topic][pair])))
                right = home[pair] == topic
                wanted = own[pair] if right else [names[i] for i in language.guest[topic]]
                assert item[2:] == wanted[: len(item) - 2]
                read += [("static" if right else "computed", 0.0)] * (len(item) - 2)
        yield [*read, ("filler", 0.0)]


def read_needles(config: NeedlesConfig, documents, *, taught: bool = True):
    """Yields (kind, classes) for each document of D4 after checking every rule."""
    names, language = token_strings(config), needles_language(config)
    following = {
        f"w{word}": {names[i] for i in row} for word, row in enumerate(language.following.tolist())
    }
    for document in documents:
        body = [names[i] for i in document.tolist()]
        if body[-1] == "<eos>":
            body.pop()
        filler, told, questions = [], [], []
        classes = []
        while body:
            token = body.pop(0)
            classes.append("filler")
            if token in "!?":
                key, body[: config.key_length] = tuple(body[: config.key_length]), []
                number = 0
                for part in key:
                    number = number * config.keys + int(part.removeprefix("k"))
                assert language.taught[number] == taught
                classes += ["filler"] * config.key_length
            if token == "!":
                size = 1 if body[0][0] == "v" else config.key_length
                told.append((key, tuple(body[:size])))
                classes += ["filler"] * size
                body = body[size:]
            elif token == "?":
                values = []
                while body and body[0][0] == "v":
                    values.append(body.pop(0))
                questions.append((key, tuple(values)))
                classes += ["computed"] * len(values)
            else:
                assert not questions, "questions come last"
                filler.append(token)
        assert all(
            after in following[word] for word, after in zip(filler, filler[1:], strict=False)
        )
        yield check_questions(config, told, questions), classes


def check_questions(config: NeedlesConfig, told, questions) -> str:
    """Kind of a document, from its needles and questions alone."""
    keys = [key for key, _ in told]
    if not told:
        assert not questions
        return "plain"
    if any(given[0][0] == "k" for _, given in told):
        values = {}
        for key, given in told:
            values[key] = given if given[0][0] == "v" else values[given]
        ((asked, answer),) = questions
        assert answer == values[asked] and asked not in {given for _, given in told}
        assert len(told) == config.chains * config.hops == len(set(keys))
        return "tracking"
    assert len(told) in (1, config.pairs)
    if len(told) > 1 and len(set(keys)) == 1:
        assert questions == [(keys[0], tuple(value for _, (value,) in told))]
        return "multivalue"
    assert len(set(keys)) == len(keys)
    assert all((key, answer) in told for key, answer in questions)
    if len(told) == 1:
        assert len(questions) == 1
        return "single"
    assert len({key for key, _ in questions}) == len(questions) in (1, len(told))
    return "multikey" if len(questions) == 1 else "multiquery"
