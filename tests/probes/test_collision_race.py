"""The race: numbers of the textbook, reproducible, and faults of a hash seen."""

import pytest

from engram_lab.probes.collision_race import MOST_KEYS, made_up_keys, race_frame, race_loads


def test_the_spot_check_of_the_catalogue():
    frame = race_frame(keys=20_000, rows=49_998, heads=2)
    assert frame["rows"].tolist() == [49_999, 49_999]
    assert frame["predicted_share"].tolist() == pytest.approx([0.330, 0.109], abs=6e-4)
    one, both = frame["collided_share"]
    assert one == pytest.approx(0.330, abs=0.012) and both == pytest.approx(0.109, abs=0.01)


def test_keys_are_distinct_and_follow_zipf():
    keys = made_up_keys(1_000)[2]
    assert len(set(keys.words[0].tolist())) == len(keys) == 1_000
    assert sorted(keys.counts)[-3:] == [334, 501, 1_001]


def test_equal_requests_give_equal_races_and_seeds_others():
    one, again, other = (race_frame(keys=300, rows=500, seed=seed) for seed in (0, 0, 1))
    assert one.equals(again) and not one.equals(other)


def test_spoilt_hashes_lose_the_race():
    sound = race_frame(keys=4_000, rows=4_096)["collided_share"]
    copies = race_frame(keys=4_000, rows=4_096, lengths="equal")["collided_share"]
    assert copies.nunique() == 1 and sound.iloc[-1] < 0.5 * copies.iloc[-1]
    even = race_loads(keys=4_000, rows=4_096, multipliers="even", lengths="power_of_two")
    assert even["deviation"].min() > 10
    assert race_loads(keys=4_000, rows=4_096)["deviation"].abs().max() < 4


@pytest.mark.parametrize("keys", [0, MOST_KEYS + 1])
def test_too_few_and_too_many_keys_are_refused(keys):
    with pytest.raises(ValueError, match=rf"keys must lie in 1..{MOST_KEYS}; got {keys}"):
        race_frame(keys=keys)
