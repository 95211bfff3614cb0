"""Documents, their split, packed and padded batches, and the shipped text as documents."""

import collections
import hashlib
import json
import lzma
import shutil
import time

import numpy as np
import pytest

from engram_lab import paths
from engram_lab.tokens.corpus import (
    Documents,
    PackedDataset,
    corpus_manifest,
    load_corpus_texts,
    load_text_corpus,
    padded_batches,
    sample_texts,
    split_documents,
)
from engram_lab.tokens.tokenizer import EOS_ID, byte_tokenizer, load_tokenizer


def documents_of(lengths, *, seed=0, classes=False) -> Documents:
    """Random documents of given lengths whose last id is eos."""
    generator = np.random.default_rng(seed)
    ids = [np.append(generator.integers(4, 1_000, length - 1), EOS_ID) for length in lengths]
    return Documents.from_lists(
        ids,
        vocab_size=1_000,
        classes=[document % 3 for document in ids] if classes else None,
        class_names=("static", "computed", "filler") if classes else (),
    )


@pytest.fixture(scope="module")
def ragged() -> Documents:
    lengths = np.random.default_rng(1).integers(1, 60, 300)
    return documents_of(lengths, classes=True)


# documents


def test_documents_give_back_what_they_were_made_from():
    documents = Documents.from_lists([[5, 6, 2], [7, 2]], vocab_size=8)
    assert (len(documents), documents.token_count) == (2, 5)
    assert documents[0].tolist() == [5, 6, 2]
    assert documents[-1].tolist() == [7, 2]
    assert documents.lengths.tolist() == [3, 2]
    with pytest.raises(IndexError):
        documents[2]


def test_select_keeps_order_ids_and_classes(ragged):
    chosen = ragged.select([7, 3, 7])
    assert [chosen[index].tolist() for index in range(3)] == [ragged[i].tolist() for i in (7, 3, 7)]
    assert np.array_equal(chosen.classes, chosen.ids % 3)


@pytest.mark.parametrize("ids", [[[5, 9]], [[5, -1]]])
def test_ids_outside_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match="must lie in 0..8"):
        Documents.from_lists(ids, vocab_size=9)


def test_an_empty_document_is_refused():
    with pytest.raises(ValueError, match="without empty"):
        Documents.from_lists([[5], []], vocab_size=9)


# packed batches


def test_every_packed_position_is_a_token_of_its_document(ragged):
    dataset = PackedDataset(ragged, seq_len=16, batch_size=4, seed=3)
    for step in range(2 * len(dataset)):
        batch = dataset.batch(step)
        for row, owners in zip(batch.input_ids.tolist(), batch.document_ids.tolist(), strict=True):
            for owner in dict.fromkeys(owners):
                piece = [token for token, at in zip(row, owners, strict=True) if at == owner]
                whole = ragged[owner].tolist()
                places = range(len(whole) - len(piece) + 1)
                assert any(whole[place : place + len(piece)] == piece for place in places)
        assert np.array_equal(batch.token_classes.numpy(), batch.input_ids.numpy() % 3)
        assert batch.attention_mask is None


def test_an_epoch_uses_every_token_at_most_once_and_nearly_all():
    lengths = np.random.default_rng(2).integers(1, 50, 200)
    documents = Documents.from_lists(  # all ids differ, so each names its token
        np.split(np.arange(4, 4 + lengths.sum()), np.cumsum(lengths)[:-1]), vocab_size=20_000
    )
    dataset = PackedDataset(documents, seq_len=16, batch_size=8, seed=0)
    for epoch in (0, 1):
        steps = range(epoch * len(dataset), (epoch + 1) * len(dataset))
        seen = np.concatenate([dataset.batch(step).input_ids.numpy().ravel() for step in steps])
        assert len(np.unique(seen)) == len(seen) == len(dataset) * 128
        assert documents.token_count - len(seen) < 128 + 16


def test_batches_are_the_same_for_all_arms_with_one_seed(ragged):
    first, second = (PackedDataset(ragged, 16, 4, seed=5) for _ in range(2))
    steps = [9, 0, 400, 9, 33]  # random access: order of asking does not matter
    expected = {step: first.batch(step).input_ids.tolist() for step in sorted(steps)}
    assert all(second.batch(step).input_ids.tolist() == expected[step] for step in steps)


def test_epochs_and_seeds_differ_in_order(ragged):
    dataset = PackedDataset(ragged, 16, 4, seed=5)
    rows = [dataset.batch(0), dataset.batch(len(dataset)), PackedDataset(ragged, 16, 4, 6).batch(0)]
    assert len({str(batch.input_ids.tolist()) for batch in rows}) == 3


def test_a_long_document_does_not_fill_a_batch():
    documents = documents_of([2_000] * 20)
    batch = PackedDataset(documents, seq_len=20, batch_size=16, seed=0).batch(0)
    assert len(np.unique(batch.document_ids)) > 4  # 1 or 2 if rows kept the order of the stream


def test_too_few_tokens_for_a_batch_is_refused(ragged):
    with pytest.raises(ValueError, match="one batch of 100 x 1000"):
        PackedDataset(ragged, seq_len=1_000, batch_size=100, seed=0)


def test_a_negative_step_is_refused(ragged):
    with pytest.raises(ValueError, match="got -1"):
        PackedDataset(ragged, 16, 4, seed=0).batch(-1)


def test_a_batch_takes_well_under_five_milliseconds():
    dataset = PackedDataset(documents_of([300] * 2_000), seq_len=128, batch_size=16, seed=0)
    dataset.batch(0)
    times = []
    for step in range(1, 30):
        begin = time.perf_counter()
        dataset.batch(step)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.005  # the least of many: other processes share the cores


# padded batches


def test_padded_rows_hold_every_document_alone(ragged):
    batches = list(padded_batches(ragged, seq_len=64, batch_size=7))
    rows = [
        (owners[mask], ids[mask])
        for batch in batches
        for ids, owners, mask in zip(
            batch.input_ids.numpy(),
            batch.document_ids.numpy(),
            batch.attention_mask.numpy() == 1,
            strict=True,
        )
    ]
    assert [owners.tolist() for owners, _ in rows] == [
        [index] * length for index, length in enumerate(ragged.lengths)
    ]
    assert np.array_equal(np.concatenate([ids for _, ids in rows]), ragged.ids)


def test_padding_is_on_the_right_and_marked():
    documents = Documents.from_lists([[5, 6, 2], [7, 2], [8]], vocab_size=9)
    (batch,) = padded_batches(documents, seq_len=10, batch_size=8)
    assert batch.input_ids.tolist() == [[5, 6, 2], [7, 2, 0], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
    assert batch.document_ids.tolist() == [[0, 0, 0], [1, 1, -1], [2, -1, -1]]


@pytest.mark.parametrize("seq_len", [2, 3, 7, 16])
def test_every_token_but_the_first_is_a_target_once(ragged, seq_len):
    targets = collections.defaultdict(list)
    for batch in padded_batches(ragged, seq_len=seq_len, batch_size=5):
        for row, owner, mask in zip(
            batch.input_ids.tolist(),
            batch.document_ids[:, 0].tolist(),
            batch.attention_mask.tolist(),
            strict=True,
        ):
            targets[owner] += row[1 : sum(mask)]
    assert all(targets[index] == ragged[index][1:].tolist() for index in range(len(ragged)))


def test_rows_without_overlap_hold_every_token_once(ragged):
    batches = padded_batches(ragged, seq_len=8, batch_size=5, overlap=0)
    kept = [batch.input_ids[batch.attention_mask == 1].numpy() for batch in batches]
    assert np.array_equal(np.concatenate(kept), ragged.ids)


# split


def test_split_is_disjoint_and_complete_for_any_size_and_share():
    everything = np.arange(4, 12_505, dtype=np.int32)
    generator = np.random.default_rng(0)
    pairs = [(12_501, 0.2), (2, 0.5)] + [
        (int(generator.integers(2, 60)), float(generator.random())) for _ in range(1_000)
    ]
    for size, share in pairs:
        documents = Documents(
            ids=everything[:size],
            offsets=np.arange(size + 1, dtype=np.int64),
            vocab_size=12_505,
        )
        train, validation = split_documents(documents, share, seed=size)
        assert np.array_equal(np.sort(np.concatenate([train.ids, validation.ids])), documents.ids)
        assert len(validation) == min(max(round(size * share), 1), size - 1)


def test_split_is_the_same_again_and_another_with_another_seed(ragged):
    ids = [split_documents(ragged, 0.3, seed=seed)[1].ids.tolist() for seed in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]


def test_split_keeps_equal_documents_together():
    documents = Documents.from_lists([[5, 2], [6, 2], [7, 2]] * 40, vocab_size=9)
    train, validation = split_documents(documents, 0.2)
    assert not {str(document) for document in train} & {str(document) for document in validation}


def test_split_refuses_a_share_of_nothing_or_documents_of_one_kind(ragged):
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_documents(ragged, 0.0)
    with pytest.raises(ValueError, match="two different documents"):
        split_documents(Documents.from_lists([[5, 2]] * 3, vocab_size=9), 0.5)


# the bundle


def test_the_manifest_describes_a_bundle_of_the_promised_size():
    manifest = corpus_manifest()
    assert manifest["raw_bytes"].sum() >= 36_000_000
    assert manifest["xz_bytes"].sum() <= 15_000_000
    assert {"en", "zh", "py"} <= set(manifest["language"])
    for row in manifest.itertuples():
        assert (paths.corpora_dir() / row.file).stat().st_size == row.xz_bytes < 5_000_000
        assert (paths.corpora_dir() / row.licence_file).stat().st_size > 500


def test_texts_have_the_documents_and_bytes_of_the_manifest():
    texts = load_corpus_texts(["novels"])
    (row,) = corpus_manifest().query("part == 'novels'").itertuples()
    assert list(texts) == ["novels"]
    assert len(texts["novels"]) == row.documents
    assert sum(len(text.encode()) for text in texts["novels"]) == row.raw_bytes
    assert any("Mr. Darcy" in text for text in texts["novels"])


def test_an_unknown_part_lists_the_known_ones():
    with pytest.raises(ValueError, match="novels, bible"):
        load_corpus_texts(["wikipedia"])


@pytest.fixture
def small_bundle(tmp_path, monkeypatch):
    """A bundle of two parts below a home of its own: its folder, and a function that writes."""
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    corpora = tmp_path / "data" / "corpora"
    corpora.mkdir(parents=True)

    def write(**parts):
        rows = []
        for part, texts in parts.items():
            raw = "".join(json.dumps(text) + "\n" for text in texts).encode()
            packed = lzma.compress(raw)
            (corpora / f"{part}.xz").write_bytes(packed)
            sums = hashlib.sha256(packed).hexdigest()
            row = {"part": part, "file": f"{part}.xz", "sha256_xz": sums}
            rows.append(row | {"raw_bytes": sum(map(len, texts))})
        (corpora / "manifest.json").write_text(json.dumps(rows))

    write(
        one=[f"first source {i}\n" + f"line {i}\n" * (i % 30) for i in range(80)],
        two=[f"SECOND SOURCE {i}" for i in range(80)],
    )
    return corpora, write


def test_a_damaged_file_is_refused(small_bundle):
    corpora, _ = small_bundle
    damaged = bytearray((corpora / "one.xz").read_bytes())
    damaged[100] ^= 1
    (corpora / "one.xz").write_bytes(damaged)
    assert len(load_corpus_texts(["two"])["two"]) == 80
    with pytest.raises(ValueError, match="one.xz must have the SHA-256 sum"):
        load_corpus_texts()


def test_a_missing_manifest_says_where_to_get_it(small_bundle):
    corpora, _ = small_bundle
    (corpora / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="build_corpora.py"):
        corpus_manifest()


def test_the_first_documents_come_from_several_sources(small_bundle):
    documents = load_text_corpus(byte_tokenizer())
    first = documents.select(range(40))
    assert set(first.classes.tolist()) == {0, 1}
    assert documents.class_names == ("one", "two")


def test_every_document_ends_with_eos_and_holds_no_other_reserved_id(small_bundle):
    documents = load_text_corpus(byte_tokenizer(), max_document_tokens=50)
    assert (documents.ids[documents.offsets[1:] - 1] == EOS_ID).all()
    assert (documents.ids < 4).sum() == len(documents)
    assert documents.lengths.max() <= 50


def test_all_text_is_there_once(small_bundle):
    documents = load_text_corpus(byte_tokenizer(), max_document_tokens=2_000)
    found = sorted(byte_tokenizer().decode(document[:-1]) for document in documents)
    assert found == sorted(text for part in load_corpus_texts().values() for text in part)


@pytest.mark.parametrize("name", ["byte", "bpe4k"])
def test_cut_documents_have_no_pair_of_tokens_that_the_whole_texts_lack(small_bundle, name):
    _, write = small_bundle
    words = ["the", "king of", "Israel\n\nand", "Sherlock's", "四大发明", "(1815)...\n"]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, 80)) for _ in range(3)]
    write(one=texts)
    tokenizer = load_tokenizer(name)
    whole = {pair for ids in tokenizer.encode_batch(texts) for pair in zip(ids, ids[1:])}  # noqa: B905
    for longest in (3, 64, 5_000):
        cut = load_text_corpus(tokenizer, max_document_tokens=longest)
        pairs = {pair for document in cut for pair in zip(document[:-1], document[1:-1])}  # noqa: B905
        assert pairs <= whole
        assert cut.token_count - len(cut) == sum(map(len, tokenizer.encode_batch(texts)))


def test_documents_are_cut_behind_lines(small_bundle):
    documents = load_text_corpus(byte_tokenizer(), parts=["one"], max_document_tokens=60)
    texts = [byte_tokenizer().decode(document[:-1]) for document in documents]
    assert len(texts) > 80
    assert all(text.endswith("\n") for text in texts)


def test_fewer_tokens_are_a_beginning_of_more(small_bundle):
    small, large = (load_text_corpus(byte_tokenizer(), max_tokens=n, seed=1) for n in (900, 3_000))
    assert (small.token_count, large.token_count) == (900, 3_000)
    whole = small.offsets[-2]  # the last document of the smaller one may be cut short
    assert np.array_equal(small.ids[:whole], large.ids[:whole])


def test_seeds_give_other_orders_and_one_seed_the_same(small_bundle):
    corpora, _ = small_bundle
    first = [load_text_corpus(byte_tokenizer(), seed=seed).ids.tolist() for seed in (0, 1)]
    shutil.rmtree(paths.cache_dir())
    assert load_text_corpus(byte_tokenizer(), seed=0).ids.tolist() == first[0] != first[1]


def test_the_second_load_reads_the_cache_and_gives_the_same(small_bundle, monkeypatch):
    first = load_text_corpus(byte_tokenizer(), max_tokens=2_000)
    monkeypatch.setattr("engram_lab.tokens.corpus.load_corpus_texts", lambda parts: 1 / 0)
    second = load_text_corpus(byte_tokenizer(), max_tokens=2_000)
    assert np.array_equal(first.ids, second.ids) and np.array_equal(first.offsets, second.offsets)
    assert np.array_equal(first.classes, second.classes)
    assert first.class_names == second.class_names
    assert not list(paths.cache_dir().glob("*.tmp"))


def test_a_changed_text_is_not_read_from_the_cache(small_bundle):
    _, write = small_bundle
    before = load_text_corpus(byte_tokenizer(), parts=["one"])
    write(one=["something else"])
    after = load_text_corpus(byte_tokenizer(), parts=["one"])
    assert before.token_count > after.token_count == len("something else") + 1


def test_an_unreadable_cache_says_to_delete_it(small_bundle):
    load_text_corpus(byte_tokenizer())
    (path,) = paths.cache_dir().glob("*.npz")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="delete the file"):
        load_text_corpus(byte_tokenizer())


def test_shipped_text_mixes_parts_by_their_size():
    documents = load_text_corpus(byte_tokenizer(), parts=["bible", "office_zh"], max_tokens=30_000)
    sizes = corpus_manifest().groupby("part")["raw_bytes"].sum()
    expected = sizes["bible"] / (sizes["bible"] + sizes["office_zh"])
    assert (documents.classes == 0).mean() == pytest.approx(expected, abs=0.05)
    assert documents.class_names == ("bible", "office_zh")


def test_pieces_of_one_text_stay_on_one_side_of_the_split():
    lists = [[5 + i % 7, 6, 7 + i % 5, i % 97 + 4, 2] for i in range(300)]
    documents = Documents.from_lists(lists, vocab_size=128, sources=[i // 4 for i in range(300)])
    train, validation = split_documents(documents, 0.2)
    assert len(train) + len(validation) == 300
    assert not set(train.sources) & set(validation.sources)
    assert abs(len(validation) / 300 - 0.2) < 0.05


def texts_in_pieces(pieces: list[int], classes: list[int]) -> Documents:
    """One text per entry, of that many pieces of 10 ids and of that class."""
    sources = np.repeat(np.arange(len(pieces)), pieces)
    return Documents.from_lists(
        [np.full(10, 4 + source) for source in sources],
        vocab_size=1_000,
        classes=[np.full(10, classes[source]) for source in sources],
        class_names=("prose", "code"),
        sources=sources.tolist(),
    )


def test_sampled_texts_come_once_before_any_comes_twice():
    documents = texts_in_pieces([50, 1, 1, 1, 1], [0] * 5)
    sample = sample_texts(documents, 50, longest=10, like=documents)
    assert sorted(sample.sources) == [0, 1, 2, 3, 4]
    more = sample_texts(documents, 80, longest=10, like=documents)
    assert np.bincount(more.sources).tolist() == [4, 1, 1, 1, 1]


def test_sampled_classes_keep_the_shares_of_another_set_and_pieces_are_cut():
    documents = texts_in_pieces([1] * 100, [0] * 50 + [1] * 50)
    like = texts_in_pieces([1] * 40, [0] * 30 + [1] * 10)
    sample = sample_texts(documents, 160, longest=4, like=like)
    assert set(sample.lengths) == {4} and sample.token_count == 160
    assert np.bincount(sample.classes).tolist() == [120, 40]


def test_a_sample_larger_than_all_pieces_holds_them_all():
    documents = texts_in_pieces([3, 2], [0, 1])
    assert len(sample_texts(documents, 10_000, longest=10, like=documents)) == 5
