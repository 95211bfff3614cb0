"""The published numbers: every table loads and says where its values come from."""

import json

import pandas as pd
import pytest

from engram_lab.paths import published_dir
from engram_lab.published import KINDS, load_published, published_names

NAMES = published_names()
INDEX = json.loads((published_dir() / "index.json").read_text())
LISTED = {entry["file"].removesuffix(".csv"): entry for entry in INDEX["files"]}


def test_index_lists_every_table_and_no_other():
    assert sorted(LISTED) == NAMES


def test_index_and_loader_know_the_same_kinds():
    assert set(INDEX["kinds"]) == set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_table_has_the_columns_and_rows_of_the_index(name):
    frame = load_published(name)
    assert list(frame.columns) == LISTED[name]["columns"]
    assert len(frame) == LISTED[name]["rows"]


@pytest.mark.parametrize("name", NAMES)
def test_every_row_names_its_source_and_a_known_kind(name):
    frame = load_published(name)
    assert frame["source"].str.len().gt(0).all()
    assert set(frame["kind"]) <= set(KINDS)


def test_allocation_keeps_the_printed_losses():
    frame = load_published("engram_allocation")
    assert {1.7248, 1.7109} <= set(pd.to_numeric(frame["val_loss"], errors="coerce"))


def test_unknown_name_is_refused_with_near_matches():
    with pytest.raises(KeyError, match="engram_allocation"):
        load_published("engram_alocation")


def test_name_without_near_match_is_refused_all_the_same():
    with pytest.raises(KeyError, match="none"):
        load_published("@@@")
