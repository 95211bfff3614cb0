"""D9: replies that must not be mixed, and what an ideal drafter keeps of them."""

import numpy as np
import pytest

from engram_lab.tokens.items import FILLER, STATIC
from engram_lab.tokens.replies import RepliesConfig, acceptance_of, replies
from engram_lab.tokens.synthetic import entropy_floor, token_strings

SMALL = RepliesConfig(cues=3, modes=2, document_length=30)


def readable(config: RepliesConfig, tokens: int = 600) -> list[list[str]]:
    names = token_strings(config)
    documents = replies(config, tokens, 0)
    return [[names[i] for i in documents[n]] for n in range(len(documents))]


def test_replies_keep_their_mode_and_bridges_do_not_tell_it() -> None:
    for words in readable(SMALL):
        assert words[-1] == "<eos>"
        text = words[:-1]
        for place, word in enumerate(text):
            if word.startswith("ask") and place + 2 < len(text):
                a, b = text[place + 1 : place + 3]
                assert a[0] == "a" and b == "b" + a[1:]
                assert int(a[1:]) // SMALL.modes == int(word[3:])
            if word.startswith("tell") and place + 3 < len(text):
                c, d, e = text[place + 1 : place + 4]
                assert (c[0], e[0]) == ("c", "e") and e[1:] == c[1:]
                assert d == "d" + word[4:]


def test_modes_are_equally_likely() -> None:
    words = [word for text in readable(SMALL, 30_000) for word in text]
    counts = np.array([words.count(f"a{i}") for i in range(6)])
    assert counts.min() > 0.85 * counts.max()


def test_the_floor_is_the_surprisal_of_cues_and_modes() -> None:
    floor = entropy_floor(SMALL, first_token=True).set_index("token_class")
    assert floor.loc["static", "floor_nats"] == 0
    documents = replies(SMALL, 60_000, 1)
    share = (documents.classes == STATIC).mean()
    assert floor.loc["static", "share"] == pytest.approx(share, abs=0.01)
    assert (documents.classes == FILLER).mean() == pytest.approx(1 - share)


def test_an_ideal_drafter_loses_the_mode_only_where_it_cannot_see_it() -> None:
    frame = acceptance_of(RepliesConfig(modes=4)).set_index(["kind", "position"])
    assert frame.loc[("ask", 2)].tolist() == [0.25, 1.0, 1.0]
    assert frame.loc[("tell", 3)].tolist() == [0.25, 0.25, 1.0]
    assert (frame.xs(1, level="position") == 1).all().all()


def test_a_longer_sample_begins_with_the_shorter_one() -> None:
    long, short = replies(SMALL, 900, 5), replies(SMALL, 300, 5)
    assert np.array_equal(long.ids[: len(short.ids)], short.ids)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"modes": 1}, "modes.*got 1"),
        ({"static_share": 1.5}, "static_share.*1.5"),
        ({"document_length": 4}, "document_length.*got 4"),
        ({"cues": 0}, "cues.*0"),
        ({"seed": -1}, "seed.*-1"),
    ],
)
def test_a_language_without_documents_is_refused(changes: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RepliesConfig(**changes)
