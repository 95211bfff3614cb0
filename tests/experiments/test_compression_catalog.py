"""E10's sweeps that train nothing: frames at tiny scale, and the stored ones whole."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import SweepError, catalog, run
from engram_lab.experiments.catalog import engram_compression
from engram_lab.experiments.store import Store
from engram_lab.tokens.released import RELEASES, SHIPPED

SWEEPS = [
    catalog.ENGRAM_COMPRESSION,
    catalog.ENGRAM_COMPRESSION_GROUPS,
    catalog.ENGRAM_COMPRESSION_MINIMAL,
    catalog.ENGRAM_COMPRESSION_PAIRS,
    catalog.ENGRAM_COMPRESSION_SCRIPTS,
    catalog.ENGRAM_COMPRESSION_TEXT,
]
COLUMNS = {
    "engram_compression": {"kind", "ids", "alone_share", "needed_share", "sha256"},
    "engram_compression_groups": {"rank", "size", "canonical", "members"},
    "engram_compression_minimal": {"kind", "first", "second", "merged"},
    "engram_compression_pairs": {"kind", "first", "second", "excess_nats", "pairs", "least"},
    "engram_compression_scripts": {"script", "ids", "changed_share", "removed_share"},
    "engram_compression_text": {"order", "raw_keys", "canonical_keys", "lost_nats"},
}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_every_sweep_runs_to_a_frame_of_named_tokenizers(sweep, monkeypatch):
    words = ["The cat sat on the mat. ", "the mat sat; A cat The mat! "]
    texts = {"novels": ["".join(words[(i + j) % 2] for j in range(9)) for i in range(400)]}
    monkeypatch.setattr("engram_lab.tokens.released.load_corpus_texts", lambda: texts)
    frame = run(sweep)
    assert COLUMNS[sweep.name] <= set(frame)
    assert frame["tokenizer"].unique().tolist() == ["bpe4k"]


def test_a_tokenizer_that_is_absent_is_named_with_the_way_to_it(monkeypatch):
    monkeypatch.setattr(engram_compression, "pick", lambda **scales: scales["workshop"])
    with pytest.raises(SweepError, match=r"fetch_tokenizers\.py gpt2"):
        run(catalog.ENGRAM_COMPRESSION, only={"tokenizer": "gpt2"}, fresh=True)


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_every_point_ships(sweep, monkeypatch, repository):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(repository))
    points, store = sweep.points(), Store.of(sweep.name)
    assert [point["tokenizer"] for point in points] == [*SHIPPED, *RELEASES]
    configs = [sweep.configure(**point) for point in points]
    assert all(
        store.holds(fingerprint(config), point, config=config)
        for config, point in zip(configs, points, strict=True)
    )
