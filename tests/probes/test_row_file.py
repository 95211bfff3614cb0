"""The file of a row index: what is read is what was written, byte for byte the same each time."""

import numpy as np
import pytest

from engram_lab.memory.config import EngramConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.row_file import load_index, save_index
from engram_lab.probes.row_keys import row_index
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents

VOCAB = 3_000_000  # so large that three ids fill more than one number


def made(vocab_size: int = 40):
    config = tiny(vocab_size)
    model = EngramLM(config, VocabCompression.identity(vocab_size)).eval()
    generator = np.random.default_rng(0)
    lists = [4 + generator.zipf(1.4, size=size) % (vocab_size - 4) for size in (60, 1, 90)]
    documents = Documents.from_lists(lists, vocab_size=vocab_size)
    return model, row_index(model, documents, passes=1.5)


def test_an_index_comes_back_from_its_file(tmp_path):
    model, index = made()
    save_index(index, tmp_path / "rows.npz")
    loaded = load_index(tmp_path / "rows.npz", model)
    for order, keys in index.counts.items():
        assert loaded.counts[order].codec == keys.codec
        assert np.array_equal(loaded.counts[order].counts, keys.counts)
        assert all(map(np.array_equal, loaded.counts[order].words, keys.words))
    assert all(loaded.use(1, 3, 1, row) == index.use(1, 3, 1, row) for row in range(97))
    assert loaded.passes == 1.5 and loaded.text([5, 6]) == index.text([5, 6])


def test_keys_of_several_numbers_come_back_too(tmp_path):
    narrow = {"hidden_size": 2, "num_attention_heads": 1, "num_key_value_heads": 1, "moe": None}
    config = tiny(VOCAB).replace(**narrow, tie_word_embeddings=True)
    model = EngramLM(config, VocabCompression.identity(VOCAB))
    ids = np.random.default_rng(0).integers(4, VOCAB, 50)
    index = row_index(model, Documents.from_lists([ids], vocab_size=VOCAB))
    assert index.counts[3].codec.word_count == 2
    save_index(index, tmp_path / "rows.npz")
    loaded = load_index(tmp_path / "rows.npz", model)
    assert all(map(np.array_equal, loaded.counts[3].words, index.counts[3].words))


def test_equal_indices_give_equal_files(tmp_path):
    for name in ("one.npz", "two.npz"):
        save_index(made()[1], tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_file_of_another_model_is_refused(tmp_path):
    save_index(made()[1], tmp_path / "rows.npz")
    with pytest.raises(ValueError, match=r"is of 40 canonical ids and orders \[2, 3\]; this model"):
        load_index(tmp_path / "rows.npz", made(50)[0])
    longer = EngramConfig(layer_ids=(1,), max_ngram_size=4, engram_vocab_size=(97, 97, 97))
    model = EngramLM(tiny(40).replace(engram=longer), VocabCompression.identity(40))
    with pytest.raises(ValueError, match=r"hashes 40 and orders \[2, 3, 4\]"):
        load_index(tmp_path / "rows.npz", model)


def test_a_damaged_file_says_so(tmp_path):
    path = tmp_path / "rows.npz"
    save_index(made()[1], path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="row index .* cannot be read"):
        load_index(path, made()[0])
    np.savez(path, format=np.array(9))
    with pytest.raises(ValueError, match="its format is 9, not 1"):
        load_index(path, made()[0])
