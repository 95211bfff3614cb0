"""Released tokenizers: found where they were put, and named with the way to get them."""

import numpy as np
import pytest

from engram_lab.tokens.released import RELEASES, bundle_documents, fetched_path, load_backend
from engram_lab.tokens.tokenizer import byte_tokenizer, load_tokenizer


def test_shipped_ones_are_at_hand():
    assert load_backend("bpe4k").get_vocab_size() == 4_096


def test_a_fetched_one_is_read_from_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    path = fetched_path("qwen3")
    with pytest.raises(FileNotFoundError, match=r"fetch_tokenizers\.py qwen3"):
        load_backend("qwen3")
    path.parent.mkdir(parents=True)
    path.write_text(byte_tokenizer().backend.to_str())
    assert load_backend("qwen3").get_vocab_size() == 260


def test_unknown_names_are_refused_with_those_that_exist():
    with pytest.raises(ValueError, match=f"bpe16k, {', '.join(RELEASES)}; got 'gpt9'"):
        load_backend("gpt9")


def test_the_bundle_in_any_ids(monkeypatch):
    texts = {"novels": ["one two", "three", ""], "bible": ["four five six"]}
    monkeypatch.setattr("engram_lab.tokens.released.load_corpus_texts", lambda: texts)
    tokenizer = load_tokenizer("bpe4k")
    more, fewer = bundle_documents("bpe4k", 9), bundle_documents("bpe4k", 4)
    assert fewer.token_count == 4 and more.token_count == 9
    assert (more.ids[:4] == fewer.ids).all() and more.vocab_size == 4_096
    assert any(tokenizer.decode(more[i]) in texts["bible"] + texts["novels"] for i in range(2))
    again = bundle_documents("bpe4k", 9)  # from the cache
    assert (again.ids == more.ids).all() and (again.offsets == more.offsets).all()
    assert again.ids.dtype == np.int32


def test_too_many_tokens_are_refused(monkeypatch):
    monkeypatch.setattr(
        "engram_lab.tokens.released.load_corpus_texts", lambda: {"novels": ["a b c"]}
    )
    with pytest.raises(ValueError, match=r"the tokens of the text bundle in bpe4k; got 1000"):
        bundle_documents("bpe4k", 1_000, seed=1)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        bundle_documents("bpe4k", 0)


@pytest.mark.parametrize("name", RELEASES)
def test_every_fetched_tokenizer_reads_back_what_it_writes(name, repository, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(repository))
    try:
        backend = load_backend(name)
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    text = "The naïve Σ of 12 sums:\n\n    return x² # 你好"
    ids = backend.encode(text, add_special_tokens=False).ids
    assert backend.decode(ids) == text and max(ids) < backend.get_vocab_size()
