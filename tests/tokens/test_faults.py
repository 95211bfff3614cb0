"""Ways in which a token map fails without an error: one group more or less rehashes every row."""

import pytest
import tokenizers
from tokenizers import decoders, models

from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import load_tokenizer
from tests.twins import normaliser as twin


def twin_map(backend: tokenizers.Tokenizer) -> list[int]:
    ids = range(backend.get_vocab_size())
    texts = [backend.decode([token], skip_special_tokens=False) for token in ids]
    return twin.token_map(texts, [backend.id_to_token(token) for token in ids])


def test_awkward_tokens_get_the_groups_of_plain_python():
    # as a byte-level vocabulary spells them: lone space, line end, nothing, é, É, wide A, a, é in
    # two code points, vertical tab, no-break space, and three bytes that are no text alone
    names = ["Ġ", "Ċ", "", "Ã©", "Ãī", "ï¼¡", "a", "eÌģ", "ċ", "Âł", "Ã", "Ģ", "ï¼", "ĠĠ", "ĠA"]
    backend = tokenizers.Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, names[0]))
    backend.decoder = decoders.ByteLevel()
    compression = VocabCompression.from_tokenizer(backend)
    assert compression.table.tolist() == twin_map(backend)
    assert compression.table.tolist() == [0, 0, 1, 2, 2, 3, 3, 2, 4, 0, 5, 6, 7, 0, 3]
    assert compression.canonical_vocab_size == 8


@pytest.mark.parametrize("name", ["byte", "bpe4k"])
def test_a_shipped_tokenizer_has_the_map_of_plain_python(name):
    tokenizer = load_tokenizer(name)
    compression = VocabCompression.from_tokenizer(tokenizer)
    expected = twin_map(tokenizer.backend)
    assert compression.table.tolist() == expected
    assert compression.canonical_vocab_size == len(set(expected)) < compression.vocab_size
