"""The token map's probes: shares that add up, planted merges found, knowledge lost and kept."""

import math

import numpy as np
import pytest
import torch

from engram_lab.probes.compression import (
    KINDS,
    folded,
    group_frame,
    kind_frame,
    merging_kind,
    visible,
)
from engram_lab.probes.compression_pairs import divergence, minimal_pair_frame, pair_frame
from engram_lab.probes.compression_scripts import script_frame
from engram_lab.probes.compression_text import conditional_entropy, predicted_loads, text_frame
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.normaliser import normalise

TEXTS = ["the", " the", "The", " THE", "é", "e", "É", "１", "1", " ", "\n", "x", "\ufffd", "\ufffd"]


def a_map(texts=TEXTS) -> VocabCompression:
    first: dict[object, int] = {}
    keys = [
        f"bytes {number}" if "\ufffd" in text else normalise(text) or text
        for number, text in enumerate(texts)
    ]
    table = torch.tensor([first.setdefault(key, len(first)) for key in keys])
    return VocabCompression(table, tokens=texts)


def test_the_removed_ids_are_counted_step_by_step():
    frame = kind_frame(a_map(), tokenizer="mine").set_index("kind")
    assert frame.index.tolist() == ["all", *KINDS]
    assert (frame["ids"] == 14).all() and (frame["tokenizer"] == "mine").all()
    assert frame.loc["all", "alone"] == frame.loc["all", "needed"] == 3 + 2 + 1 + 1
    assert frame["alone"].tolist()[1:] == [1, 1, 3, 2]  # of case: The, THE beside " the", É
    assert frame.loc["form", "needed"] == 1 and frame.loc["accent", "needed"] == 1
    assert frame.loc["case", "needed"] == 3  # The and THE stay apart, and so does É
    assert frame.loc["space", "needed"] == 2  # " the" and " THE" find each other, not "the"
    assert frame["alone_share"].tolist() == pytest.approx((frame["alone"] / 14).tolist())
    assert (frame["canonical_ids"] == 14 - frame["alone"]).all()


@pytest.mark.parametrize("text", ["Ａé ", " \n", " ", "\u0301", "①Straße", "\x0b", ""])
def test_all_steps_together_are_the_normaliser(text):
    assert folded(text, KINDS) == normalise(text)
    assert folded(text, []) == text


def test_the_largest_groups_come_first_and_are_readable():
    frame = group_frame(a_map(), largest=2)
    assert frame["size"].tolist() == [4, 3] and frame["rank"].tolist() == [1, 2]
    assert frame["canonical"].tolist() == ["the", "e"]
    assert frame["members"][0] == "the · ␣the · The · ␣THE"
    assert visible(" \n\t\x00a") == "␣⏎⇥\\u0000a"
    assert group_frame(a_map(["a", "b"])).empty


def test_one_step_or_several_merge_two_spellings():
    pairs = {
        "space": (" the", "the"),
        "case": ("É", "é"),
        "accent": ("é", "e"),
        "form": ("１", "1"),
    }
    assert {kind: merging_kind(*pair) for kind, pair in pairs.items()} == {k: k for k in pairs}
    assert merging_kind(" The", "the") == "several"
    with pytest.raises(ValueError, match="makes 'a' and 'b' one"):
        merging_kind("a", "b")


def documents(*lists) -> Documents:
    return Documents.from_lists(lists, vocab_size=14)


def test_shares_of_a_text():
    text = documents([0, 1, 1, 11], [2, 11, 4])
    frame = text_frame(a_map(), text, orders=(1, 2)).set_index("order")
    assert (frame["tokens"] == 7).all()
    assert frame["merged_share"].tolist() == pytest.approx([5 / 7] * 2)
    assert frame["respelled_share"].tolist() == pytest.approx([2 / 7] * 2)  # "the" and "The"
    assert frame["raw_keys"].tolist() == [5, 5] and frame["canonical_keys"].tolist() == [3, 3]
    assert frame["key_reduction"].tolist() == pytest.approx([0.4, 0.4])


def test_fewer_keys_are_expected_to_share_fewer_rows():
    frame = text_frame(a_map(), documents([0, 1, 1, 11], [2, 11, 4]), orders=(1, 2))
    loads = predicted_loads(frame, 3).set_index("order")
    assert loads.loc[1, ["raw_load", "canonical_load"]].tolist() == pytest.approx([5 / 3, 1])
    assert loads.loc[1, "raw_share"] == pytest.approx(1 - (2 / 3) ** 4)
    assert loads.loc[1, "canonical_share"] == pytest.approx(1 - (2 / 3) ** 2)


def test_a_spelling_that_tells_what_follows_is_missed():
    generator = np.random.default_rng(0)
    spelled = generator.integers(0, 2, 4_000)  # "the" is followed by x, " the" by 1
    told = np.stack([spelled, np.where(spelled == 0, 11, 8)], 1).ravel()
    other = np.stack([spelled, generator.choice([11, 8], 4_000)], 1).ravel()
    lost, kept = (text_frame(a_map(), documents(ids), orders=(1,)).iloc[0] for ids in (told, other))
    assert lost["lost_nats"] == pytest.approx(math.log(2) / 2, rel=0.01)  # at every other token
    assert lost["lost_by_chance_nats"] < 0.001
    assert kept["lost_nats"] == pytest.approx(kept["lost_by_chance_nats"], abs=0.001)


def test_nothing_follows_the_end_of_a_document():
    one = text_frame(a_map(), documents([0, 11], [0, 11], [0, 8]), orders=(1,)).iloc[0]
    assert one["raw_nats"] == pytest.approx(-(2 * math.log(2 / 3) + math.log(1 / 3)) / 3)


def test_conditional_entropy_is_that_of_a_table():
    contexts, following = np.array([0, 0, 5, 5]), np.array([1, 2, 3, 3])
    assert conditional_entropy(contexts, following) == pytest.approx(math.log(2) / 2)


def test_pairs_that_are_followed_by_different_tokens_come_first():
    generator = np.random.default_rng(0)
    ids = []
    for _ in range(600):
        first = int(generator.integers(0, 2))
        ids += [first, 11 if first else 8]  # "the" 1, " the" x: nothing in common
        ids += [int(generator.choice([4, 5])), int(generator.choice([8, 11]))]  # é and e alike
    frame = pair_frame(a_map(), documents(ids), tokenizer="mine", least=100)
    assert set(frame.loc[0, ["first", "second"]]) == {"the", "␣the"}
    assert frame.loc[0, "divergence_nats"] == pytest.approx(math.log(2), abs=0.01)
    assert frame.loc[1, "excess_nats"] == pytest.approx(0, abs=0.02)
    assert frame.loc[0, "first_count"] >= frame.loc[0, "second_count"]
    assert len(frame) == 2 and (frame["tokenizer"] == "mine").all()


def test_divergence_of_known_samples():
    assert divergence(np.array([1, 2]), np.array([2, 1, 1, 2])) == pytest.approx(0)
    assert divergence(np.array([1]), np.array([2])) == pytest.approx(math.log(2))


def test_minimal_pairs_are_told_apart_or_not():
    from engram_lab.tokens.tokenizer import byte_tokenizer

    backend = byte_tokenizer().backend
    compression = VocabCompression.from_tokenizer(backend)
    pairs = {"case": [("US", "us")], "accent": [("é", "e")], "space": [("\n", " ")]}
    frame = minimal_pair_frame(compression, backend, pairs)
    assert frame["kind"].tolist() == ["case", "accent", "space"]
    assert frame["merged"].tolist() == [True, False, True]  # bytes of é are no text alone
    assert frame["first"].tolist() == ["US", "é", "⏎"] and frame["first_tokens"][1] == 2


def test_marks_are_letters_in_some_scripts():
    texts = ["e", "é", " e", "か", "が", "き", "क", "कि", "한", "[é", "12"]
    frame = script_frame(a_map(texts), tokenizer="mine", least=1).set_index("script")
    assert frame["ids"].to_dict() == {"Latin": 4, "Hiragana": 3, "Devanagari": 2, "Hangul": 1}
    assert frame["changed"].to_dict() == {"Latin": 2, "Hiragana": 1, "Devanagari": 1, "Hangul": 0}
    assert frame["removed"].to_dict() == {"Latin": 1, "Hiragana": 1, "Devanagari": 1, "Hangul": 0}
    assert (
        frame.loc["Latin", "changed_share"] == 0.5 and frame.loc["Latin", "removed_share"] == 0.25
    )
    with pytest.raises(ValueError, match="no script has 100 ids of 11"):
        script_frame(a_map(texts))


def test_bad_input_is_refused_with_the_way_out():
    bare = VocabCompression.from_table([0, 1, 1])
    for probe in (kind_frame, group_frame, script_frame):
        with pytest.raises(ValueError, match=r"VocabCompression\.from_tokenizer"):
            probe(bare)
    with pytest.raises(ValueError, match=r"VocabCompression\.from_tokenizer"):
        pair_frame(bare, documents([0, 1]))
    with pytest.raises(ValueError, match="at least 1 group"):
        group_frame(a_map(), largest=0)
    with pytest.raises(ValueError, match="kinds must be among"):
        folded("a", ["colour"])
    with pytest.raises(ValueError, match=r"must lie in 0..2"):
        text_frame(bare, documents([5]))
    with pytest.raises(ValueError, match="order 2 with a token behind it"):
        text_frame(a_map(), documents([5], [6]), orders=(2,))
    with pytest.raises(ValueError, match="at least 1 token; got order 0"):
        text_frame(a_map(), documents([5, 6]), orders=(0,))
    with pytest.raises(ValueError, match="occur 50 times each"):
        pair_frame(a_map(), documents([0, 1, 0]))
