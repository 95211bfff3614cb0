"""Ways in which a memory fails without an error: whole numbers that overflow."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from tests.twins import hashing as twin

TINY = EngramConfig(
    layer_ids=(1,),
    max_ngram_size=4,
    engram_vocab_size=(50, 70, 90),
    n_head_per_ngram=2,
    n_embed_per_ngram=4,
)


@pytest.mark.parametrize("vocab", [1, 2, 99_092, 2**31, 2**40])
@pytest.mark.parametrize("rule", ["pcg64", "splitmix64"])
def test_the_largest_ids_are_hashed_as_python_hashes_them(vocab, rule):
    draw = {"pcg64": (twin.pcg_multipliers, 1), "splitmix64": (twin.splitmix_multipliers, 0)}
    with np.errstate(all="raise"):
        config = replace(TINY, multiplier_rule=rule)
        ngram_hash = NgramHash(config, 1, canonical_vocab_size=vocab, fill_id=vocab - 1)
    factors = ngram_hash.multipliers.tolist()
    multipliers, layer = draw[rule]
    assert factors == multipliers(vocab, 0, layer, 4)
    assert max(factors) * (vocab - 1) < 2**63
    ids = [vocab - 1] * 6
    expected = twin.addresses(
        ids, factors, twin.prime_layout(1, [50, 70, 90], 2)[0], fill=vocab - 1
    )
    found = ngram_hash.addresses(torch.tensor([ids]))
    assert found[0].tolist() == expected
    assert found.min() >= 0
