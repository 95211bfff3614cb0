"""Collisions: counted within sampling error of the formula, planted ones found, faults seen."""

import math

import numpy as np
import pytest
import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import MemoryContext
from engram_lab.memory.keys import KeyCodec, KeyCounter, KeyCounts
from engram_lab.probes.collisions import (
    collision_frame,
    collisions_of_counts,
    joint_frame,
    predicted_share,
    share_error,
)
from engram_lab.probes.hash_rules import HashRule
from engram_lab.probes.interference import interference_frame
from engram_lab.probes.row_loads import evenness_frame, load_frame
from tests.twins import collisions as twin

COLUMNS = [
    *("layer", "order", "head", "keys", "rows", "load", "predicted_share", "collided_share"),
    *("share_error", "traffic_share", "traffic_error", "interference"),
]
VOCAB = 3_000


def ngram_hash(rows=(97, 89), heads=2, vocab=VOCAB) -> NgramHash:
    config = EngramConfig(
        layer_ids=(1,), engram_vocab_size=rows, n_head_per_ngram=heads, n_embed_per_ngram=4 * heads
    )
    return NgramHash(config, 1, canonical_vocab_size=vocab, fill_id=0)


def random_bigrams(number: int, vocab: int = VOCAB, seed: int = 0) -> dict[int, KeyCounts]:
    """So many different pairs of ids, counted as a Zipf law would have it."""
    generator = np.random.default_rng(seed)
    codec = KeyCodec(order=2, vocab_size=vocab)
    words = generator.choice(vocab**2, size=number, replace=False)
    counts = 1 + number // (1 + generator.permutation(number))
    return {2: KeyCounts(codec=codec, words=(np.sort(words),), counts=counts)}


def planted(*keys: tuple[int, int], counts, vocab: int = VOCAB) -> dict[int, KeyCounts]:
    codec = KeyCodec(order=2, vocab_size=vocab)
    words = codec.pack([np.array(column) for column in zip(*keys, strict=True)])
    return {2: KeyCounts(codec=codec, words=tuple(words), counts=np.array(counts))}


def test_the_formula():
    assert predicted_share(1, 10) == 0
    assert predicted_share(2, 10) == pytest.approx(0.1)
    assert predicted_share(20_000, 49_999) == pytest.approx(0.330, abs=5e-4)
    assert predicted_share(5, 1) == 1
    assert predicted_share(6_000_000, 16_000_057**8) == pytest.approx(0, abs=1e-40)
    with pytest.raises(ValueError, match="at least 1 key and 1 row"):
        predicted_share(3, 0)


def test_the_sampling_error_is_that_of_random_placement():
    generator = np.random.default_rng(0)
    for keys, rows in ((2, 5), (3, 4), (40, 30)):
        placed = generator.integers(rows, size=(8_000, keys))
        alone = np.array([np.bincount(row, minlength=rows)[row] == 1 for row in placed])
        shares = 1 - alone.mean(axis=1)
        assert shares.mean() == pytest.approx(predicted_share(keys, rows), abs=0.02)
        assert shares.std() == pytest.approx(share_error(keys, rows), rel=0.05)


def test_counts_lie_within_the_sampling_error_of_the_formula():
    # 36 tables; four standard deviations are passed by chance once in five hundred such tests
    for seed in range(3):
        counts = random_bigrams(20_000, seed=seed)
        rule = HashRule.of(ngram_hash(rows=(5_000 * 4**seed, 97), heads=12))
        frame = collisions_of_counts(rule, counts, layer=1)
        away = (frame["collided_share"] - frame["predicted_share"]) / frame["share_error"]
        assert away.abs().max() < 4
        heavy = (frame["traffic_share"] - frame["predicted_share"]) / frame["traffic_error"]
        assert heavy.abs().max() < 4


def test_two_heads_collide_together_as_often_as_the_product_says():
    config = EngramConfig(layer_ids=(0,), engram_vocab_size=(49_999, 97), n_head_per_ngram=2)
    rule = HashRule.from_config(config, 0, canonical_vocab_size=VOCAB)
    frame = joint_frame(rule, random_bigrams(20_000), layer=0)
    one, both = frame["collided_share"].tolist()
    assert one == pytest.approx(0.330, abs=0.012) and both == pytest.approx(0.109, abs=0.01)
    assert frame["predicted_share"].tolist() == pytest.approx([0.330, 0.109], abs=1e-3)
    assert frame["twin_share"].iloc[0] == one and frame["twin_share"].iloc[1] < 0.001


def test_everything_agrees_with_plain_python():
    texts = torch.randint(0, 30, (4, 60))
    memory = ngram_hash(vocab=30)
    frame = collision_frame(memory, texts)
    assert list(frame.columns) == COLUMNS
    factors = memory.multipliers.tolist()
    for row in frame.itertuples():
        counted = twin.keys(texts.tolist(), row.order, fill=0)
        assert row.keys == len(counted) and row.load == len(counted) / row.rows
        for name, value in twin.shares(counted, factors, row.rows).items():
            assert getattr(row, name) == pytest.approx(value)


def test_keys_land_where_the_memory_looks_them_up():
    memory = ngram_hash(vocab=30)
    texts = torch.randint(0, 30, (2, 50))
    addresses = memory.addresses(texts).flatten(0, 1).numpy()
    counter = KeyCounter(memory)
    counter.add(texts)
    rule = HashRule.of(memory)
    for order, counts in counter.counts().items():
        for head, rows in enumerate(rule.lengths[order - 2]):
            landed = rule.numbers(counts) % rows
            looked_up = addresses[:, 2 * (order - 2) + head]
            traffic = np.bincount(landed, weights=counts.counts, minlength=rows)
            assert (np.bincount(looked_up, minlength=rows) == traffic).all()


def test_a_planted_collision_is_found():
    rule = HashRule(multipliers=(1, 10), lengths=((7,),))
    counts = planted((1, 0), (8, 0), (2, 0), counts=[6, 2, 2])  # 1 and 8 leave 1, 2 leaves 2
    frame = collisions_of_counts(rule, counts, layer=3)
    assert frame["collided_share"].item() == pytest.approx(2 / 3)
    assert frame["traffic_share"].item() == pytest.approx(0.8)
    assert frame["interference"].item() == pytest.approx((6 * 0.25 + 2 * 0.75) / 10)
    by_class = interference_frame(rule, counts, layer=3).set_index("frequency")
    assert by_class.loc[4, "mean_interference"] == pytest.approx(0.25)
    assert by_class.loc[2, "mean_interference"] == pytest.approx((0.75 + 0) / 2)
    assert by_class.loc[2, "keys"] == 2 and by_class.loc[2, "clean_share"] == 0.5
    assert by_class["traffic_share"].sum() == pytest.approx(1)


def test_a_head_more_cleans_the_rows_of_keys_that_one_head_confuses():
    rule = HashRule(multipliers=(1, 10), lengths=((7, 11),))
    counts = planted((1, 0), (8, 0), counts=[3, 1])
    joint = joint_frame(rule, counts, layer=0)
    assert joint["collided_share"].tolist() == [1, 0] and joint["twin_share"].tolist() == [1, 0]
    last = interference_frame(rule, counts, layer=0, heads=[2])
    assert last["heads"].unique().tolist() == [2] and (last["clean_share"] == 1).all()


def test_equal_lengths_make_all_heads_one():
    rule = HashRule.of(ngram_hash(rows=(5_000, 97), heads=4))
    counts = random_bigrams(4_000)
    frame = joint_frame(rule.spoilt(lengths="equal"), counts, layer=1)
    assert frame["collided_share"].nunique() == frame["twin_share"].nunique() == 1
    assert frame["predicted_share"].nunique() == frame["predicted_twins"].nunique() == 1
    sound = joint_frame(rule, counts, layer=1)
    assert sound["collided_share"].iloc[-1] < 0.2 * frame["collided_share"].iloc[-1]


def test_even_multipliers_waste_half_of_a_power_of_two_and_nothing_of_a_prime():
    rule, counts = HashRule.of(ngram_hash(rows=(4_096, 97))), random_bigrams(4_000)
    shares = {
        (factors, lengths): collisions_of_counts(
            rule.spoilt(multipliers=factors, lengths=lengths), counts, layer=1
        )["collided_share"].iloc[0]
        for factors in ("odd", "even")
        for lengths in ("primes", "power_of_two")
    }
    assert shares["even", "power_of_two"] == pytest.approx(predicted_share(4_000, 2_048), abs=0.03)
    for sound in (("odd", "primes"), ("even", "primes"), ("odd", "power_of_two")):
        assert shares[sound] == pytest.approx(predicted_share(4_000, 4_096), abs=0.03)


def test_equal_multipliers_forget_the_order_of_the_tokens():
    rule = HashRule.of(ngram_hash()).spoilt(multipliers="equal")
    numbers = rule.numbers(planted((4, 9), (9, 4), (5, 5), counts=[1, 1, 1])[2])
    assert numbers[0] == numbers[1] and numbers[2] == 0


def test_loads_are_those_of_even_spreading_unless_the_hash_is_spoilt():
    rule, counts = HashRule.of(ngram_hash(rows=(5_000, 97), heads=4)), random_bigrams(20_000)
    frame = load_frame(rule, counts, layer=1, most=9)
    assert frame.groupby("head")[["row_share", "predicted_share"]].sum().to_numpy() == (
        pytest.approx(1)
    )
    assert (frame["row_share"] - frame["predicted_share"]).abs().max() < 0.02
    assert evenness_frame(rule, counts, layer=1)["deviation"].abs().max() < 4
    small = evenness_frame(rule.spoilt(multipliers="small"), counts, layer=1)
    assert small["deviation"].min() > 6


def test_chi_square_is_the_textbook_sum():
    rule = HashRule(multipliers=(1, 10), lengths=((3,),))
    counts = planted((0, 0), (3, 0), (1, 0), counts=[1, 1, 1])  # loads 2, 1, 0
    row = evenness_frame(rule, counts, layer=0).iloc[0]
    assert row["chi_square"] == pytest.approx(2)
    assert row["deviation"] == pytest.approx(0 / math.sqrt(2 * 2 * 2 / 3))


def test_documents_and_masks_reach_the_count():
    ids = torch.tensor([[5, 6, 5, 6]])
    whole = collision_frame(ngram_hash(), ids)
    documents = torch.tensor([[0, 0, 1, 1]])
    cut = collision_frame(ngram_hash(), ids, context=MemoryContext(document_ids=documents))
    assert whole.loc[whole["order"] == 2, "keys"].unique().tolist() == [3]
    assert cut.loc[cut["order"] == 2, "keys"].unique().tolist() == [2]


def test_bad_input_is_refused_with_the_way_out():
    memory = ngram_hash()
    with pytest.raises(ValueError, match="at least one position"):
        collision_frame(memory, torch.zeros(1, 0, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"must lie in 0..2999"):
        collision_frame(memory, torch.tensor([[VOCAB]]))
    dead = MemoryContext(attention_mask=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="at least one key of every order"):
        collision_frame(memory, torch.tensor([[4]]), context=dead)
    with pytest.raises(ValueError, match="multipliers must be one of odd, even"):
        HashRule.of(memory).spoilt(multipliers="prime")
    with pytest.raises(ValueError, match=r"heads must lie in 1..2"):
        interference_frame(HashRule.of(memory), random_bigrams(5), layer=1, heads=[3])
