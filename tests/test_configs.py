"""Configs: JSON there and back, stable fingerprints, misspelt keys named."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram_lab.configs import fingerprint, from_json, same_config, to_dict, to_json


@dataclass(frozen=True, kw_only=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    rate: float
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(-(2**60), 2**60), max_size=4),
    st.none() | st.text(max_size=5),
)
def test_json_round_trip_is_exact(rate, sizes, name):
    config = Outer(rate=rate, inner=Inner(sizes=tuple(sizes), name=name), maybe=Inner())
    assert from_json(Outer, to_json(config)) == config


def test_fingerprint_names_content_not_identity():
    assert fingerprint(Outer(rate=1.0)) == fingerprint(Outer(rate=1.0, inner=Inner()))
    assert fingerprint(Outer(rate=1.0)) != fingerprint(Outer(rate=2.0))
    assert len(fingerprint(Outer(rate=1.0))) == 12


def test_misspelt_key_names_the_nearest_known_one():
    with pytest.raises(ValueError, match="Inner has no key 'sises'; nearest known key: 'sizes'"):
        from_json(Outer, '{"rate": 1.0, "inner": {"sises": [1]}}')


def test_missing_key_and_broken_text_are_named():
    with pytest.raises(ValueError, match="Outer needs rate"):
        from_json(Outer, "{}")
    with pytest.raises(ValueError, match="not JSON"):
        from_json(Outer, "{rate}")


def test_a_field_added_with_a_default_leaves_the_fingerprint_alone():
    @dataclass(frozen=True, kw_only=True)
    class Grown(Inner):
        colour: str = "grey"

    assert fingerprint(Grown(sizes=(3,))) == fingerprint(Inner(sizes=(3,)))
    assert fingerprint(Grown(sizes=(3,), colour="red")) != fingerprint(Inner(sizes=(3,)))


def test_a_changed_default_is_noticed_where_stored_values_are_compared():
    stored = to_dict(Outer(rate=1.0))
    assert same_config(stored, Outer(rate=1.0))
    assert not same_config({**stored, "inner": {"sizes": [9], "name": None}}, Outer(rate=1.0))
    assert same_config({key: stored[key] for key in ("rate",)}, Outer(rate=1.0))


def test_a_value_of_the_wrong_type_is_named_and_whole_numbers_do_for_floats():
    with pytest.raises(ValueError, match="Outer.rate must be float; got '1.0'"):
        from_json(Outer, '{"rate": "1.0"}')
    assert from_json(Outer, '{"rate": 1}') == Outer(rate=1.0)


def test_a_union_of_configs_is_restored_as_the_one_that_has_the_keys() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Plain:
        width: int
        depth: int = 1

    @dataclass(frozen=True, kw_only=True)
    class Gated:
        width: int
        gate: float

    @dataclass(frozen=True, kw_only=True)
    class Holder:
        part: Plain | Gated | None = None

    globals().update(Plain=Plain, Gated=Gated)  # annotations are looked up by name
    for part in (Plain(width=2), Gated(width=2, gate=0.5), None):
        assert from_json(Holder, to_json(Holder(part=part))) == Holder(part=part)
