"""From logits to tokens: temperature, truncation, draws by inversion, streams kept apart."""

import pytest
import torch

from engram_lab.draft.sampling import Noise, Sampling, draw
from tests.draft.tiny import golden

GOLDEN = golden("rejection")
LOGITS = torch.tensor([2.0, 1.0, 0.5, -1.0, 0.4])


def probs(**fields: object) -> torch.Tensor:
    return Sampling(**fields).probs(LOGITS)


@pytest.mark.parametrize("case", GOLDEN["logits_to_probs"]["cases"], ids=str)
def test_temperatures_are_golden(case: dict):
    logits = torch.tensor(GOLDEN["logits_to_probs"]["logits"], dtype=torch.float64)
    found = Sampling(temperature=case["temperature"]).probs(logits)
    assert torch.allclose(found, torch.tensor(case["probs"]).double(), atol=1e-6)


def test_no_temperature_takes_the_most_likely_and_the_first_of_equals():
    tied = torch.tensor([[0.0, 3.0, 3.0], [1.0, 0.0, -1.0]])
    assert Sampling(temperature=0.0).probs(tied).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert Sampling(temperature=9e-6).greedy
    assert not Sampling(temperature=1e-5).greedy


def test_the_most_likely_tokens_are_kept_and_their_odds_too():
    found, whole = probs(top_k=2), probs()
    assert (found > 0).tolist() == [True, True, False, False, False]
    assert torch.allclose(found[:2] / found[0], whole[:2] / whole[0])
    assert torch.allclose(probs(top_k=99), whole)


def test_the_fewest_tokens_whose_mass_reaches_a_share_are_kept():
    whole = probs()  # 0.53, 0.20, 0.12, 0.03, 0.11
    assert (probs(top_p=0.5) > 0).sum() == 1
    assert (probs(top_p=float(whole[0]) + 1e-4) > 0).sum() == 2
    assert (probs(top_p=0.8) > 0).tolist() == [True, True, True, False, False]
    assert (probs(top_p=1e-9) > 0).sum() == 1


def test_a_share_is_taken_of_what_top_k_left():
    # of the first two, the first has 0.73: enough on its own, though 0.53 of the whole is not
    assert (probs(top_k=2, top_p=0.7) > 0).sum() == 1
    assert (probs(top_p=0.7) > 0).sum() == 2


def test_a_top_p_of_one_keeps_every_token_however_rare():
    rare = torch.tensor([40.0, 0.0, -10.0, 20.0])  # sums reach 1 in float32 before the last
    assert (Sampling(top_k=3, top_p=1.0).probs(rare) > 0).sum() == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_float32_laws(dtype: torch.dtype):
    found = Sampling(top_k=3).probs(LOGITS.to(dtype))
    assert found.dtype == torch.float32
    assert torch.allclose(found.sum(), torch.tensor(1.0))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_every_shape_is_a_law_in_its_last_axis(shape: tuple[int, ...]):
    found = Sampling(temperature=0.7, top_k=3, top_p=0.9).probs(torch.randn(shape))
    assert torch.allclose(found.sum(-1), torch.ones(shape[:-1]))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0; got -0.1"),
        ({"temperature": float("nan")}, "got nan"),
        ({"top_k": 0}, "top_k must be at least 1 or None; got 0"),
        ({"top_p": 0.0}, "top_p must lie above 0 and up to 1; got 0.0"),
        ({"top_p": 1.5}, "got 1.5"),
    ],
)
def test_values_out_of_range_are_refused(fields: dict, told: str):
    with pytest.raises(ValueError, match=told):
        Sampling(**fields)


def test_draws_invert_the_cumulated_mass():
    law = torch.tensor([0.25, 0.0, 0.5, 0.25])
    uniform = torch.tensor([0.0, 0.24, 0.25, 0.74, 0.75, 0.999])
    assert draw(law.expand(6, 4), uniform).tolist() == [0, 0, 2, 2, 3, 3]
    assert draw(2 * law.expand(6, 4), uniform).tolist() == [0, 0, 2, 2, 3, 3]


def test_a_token_of_no_mass_is_never_drawn():
    law = torch.tensor([0.0, 0.3, 0.7, 0.0])
    largest = torch.tensor(1 - 2**-24)
    assert int(draw(law, torch.tensor(0.0))) == 1
    assert int(draw(law, largest)) == 2
    third = torch.full((3,), 1 / 3)
    third[2] = 0.0
    assert int(draw(third, largest)) == 1


def test_a_grid_of_draws_has_the_law():
    law = torch.softmax(LOGITS, -1)
    grid = (torch.arange(10_000) + 0.5) / 10_000
    shares = draw(law.expand(10_000, 5), grid).bincount(minlength=5) / 10_000
    assert torch.allclose(shares, law, atol=1e-4)


def test_purposes_sequences_and_seeds_have_streams_apart():
    drawn = torch.cat(
        [Noise(3, seed).uniform(purpose, 200) for seed in (0, 1, 2) for purpose in Noise.PURPOSES]
    )
    correlation = torch.corrcoef(drawn) - torch.eye(len(drawn))
    assert correlation.abs().max() < 0.35  # five deviations of 1 / sqrt(200)
    assert 0 <= drawn.min() < drawn.max() < 1


def test_a_sequence_draws_the_same_whatever_stands_beside_it():
    alone, beside = Noise(2, 7), Noise(5, 7)
    assert torch.equal(alone.uniform("accept", 4), beside.uniform("accept", 4)[:2])
    beside.select([1, 4])
    alone.select([1])
    assert torch.equal(alone.uniform("draft", 3), beside.uniform("draft", 3)[:1])


def test_numbers_that_a_sequence_does_not_need_are_not_drawn():
    one, other = Noise(2, 3), Noise(2, 3)
    first = one.uniform("accept", 5, used=torch.tensor([2, 5]))
    assert (first[0, 2:] == 0).all()
    again = other.uniform("accept", 2, used=torch.tensor([2, 0]))
    assert torch.equal(first[0, :2], again[0])
    assert torch.equal(one.uniform("accept", 3)[0], other.uniform("accept", 3)[0])
