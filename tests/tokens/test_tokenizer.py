"""The tokenizers: lossless, reserved ids out of reach of text, the same in `transformers`."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.tokens.tokenizer import RESERVED, Tokenizer, byte_tokenizer, load_tokenizer

NAMES = ("byte", "bpe4k", "bpe16k")
TEXTS = (
    "Only Alexander the Great could tame the horse Bucephalus.",
    "四大发明 include 造纸术，印刷术。\n花間一壺酒，獨酌無相親。",
    "def f(x):\n\treturn x  # naïve \u00a0 e\u0301 \U0001f600\r\n\x00\x7f",
    "   \n\n  ",
)


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request) -> Tokenizer:
    return load_tokenizer(request.param)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_unchanged(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_unchanged_and_holds_no_reserved_id(text):
    for name in ("byte", "bpe4k"):
        tokenizer = _loaded(name)
        ids = tokenizer.encode_ids(text)
        assert tokenizer.decode(ids) == text
        assert all(token_id >= 4 for token_id in ids)


def test_shipped_sizes_and_reserved_ids(tokenizer):
    sizes = {"byte": 260, "bpe4k": 4_096, "bpe16k": 16_384}
    assert tokenizer.vocab_size == sizes[tokenizer.name]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == list(RESERVED)


@pytest.mark.parametrize("text", RESERVED)
def test_names_of_reserved_tokens_in_text_stay_text(tokenizer, text):
    sentence = f"a{text} {text}{text}\n"
    ids = tokenizer.encode_ids(sentence)
    assert min(ids) >= 4
    assert tokenizer.decode(ids) == sentence
    assert tokenizer.encode_batch([sentence]) == [ids]


def test_reserved_tokens_in_text_stay_text_after_copying(tokenizer):
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert min(other.encode_ids("<eos><pad>")) >= 4
        assert other.name == tokenizer.name


def test_empty_text_has_no_ids(tokenizer):
    assert tokenizer.encode_ids("") == []
    assert tokenizer.encode("").shape == (1, 0)
    assert tokenizer.encode("").dtype == torch.int64
    assert tokenizer.decode([]) == ""


def test_encode_gives_a_batch_of_one(tokenizer):
    ids = tokenizer.encode("Princess of Wales")
    assert ids.shape == (1, len(tokenizer.encode_ids("Princess of Wales")))
    assert tokenizer.decode(ids) == tokenizer.decode(ids[0].numpy()) == "Princess of Wales"


def test_decode_can_leave_reserved_ids_out():
    tokenizer = byte_tokenizer()
    ids = [1, *tokenizer.encode_ids("hi"), 2, 0]
    assert tokenizer.decode(ids) == "<bos>hi<eos><pad>"
    assert tokenizer.decode(ids, skip_reserved=True) == "hi"


def test_every_id_has_a_readable_text_of_its_own(tokenizer):
    names = tokenizer.tokens(np.arange(tokenizer.vocab_size))
    assert len(set(names)) == tokenizer.vocab_size
    assert not any("\ufffd" in name or min(name) < " " for name in names)


def test_partial_characters_read_as_escaped_bytes():
    tokenizer = byte_tokenizer()
    assert tokenizer.tokens(tokenizer.encode("é\n")) == ["\\xc3", "\\xa9", "⏎"]


def test_token_bytes_join_to_the_text(tokenizer):
    for text in TEXTS:
        joined = b"".join(
            tokenizer.token_bytes(token_id) for token_id in tokenizer.encode_ids(text)
        )
        assert joined.decode() == text


@pytest.mark.parametrize("token_id", [-1, 260])
def test_an_id_outside_the_vocabulary_is_refused(token_id):
    with pytest.raises(ValueError, match="0..259"):
        byte_tokenizer().token_bytes(token_id)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="byte, bpe16k, bpe4k; got 'bpe8k'"):
        load_tokenizer("bpe8k")


def test_a_backend_without_the_reserved_ids_is_refused():
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

    with pytest.raises(ValueError, match="<mask>"):
        Tokenizer(Backend(BPE(vocab={"a": 0}, merges=[])), "other")


def test_fingerprints_tell_tokenizers_apart():
    assert len({load_tokenizer(name).fingerprint for name in NAMES}) == len(NAMES)
    assert byte_tokenizer().fingerprint == byte_tokenizer().fingerprint


def test_words_of_a_sentence_keep_their_space():
    tokens = load_tokenizer("bpe4k").tokens(load_tokenizer("bpe4k").encode("of the and"))
    assert tokens == ["of", " the", " and"]


def test_transformers_gives_the_same_ids_and_knows_the_reserved_ones(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    ours = tokenizer.to_transformers()
    ours.save_pretrained(tmp_path)
    for theirs in (ours, AutoTokenizer.from_pretrained(tmp_path)):
        for text in (*TEXTS, "a<eos>b"):
            assert theirs(text).input_ids == tokenizer.encode_ids(text)
            assert theirs.decode(theirs(text).input_ids) == text
        found = (
            theirs.pad_token_id,
            theirs.bos_token_id,
            theirs.eos_token_id,
            theirs.mask_token_id,
        )
        assert found == (0, 1, 2, 3)


def test_transformers_pads_prompts_on_the_left():
    batch = byte_tokenizer().to_transformers()(["a", "bcd"], padding=True)
    assert batch.input_ids[0][:2] == [0, 0]
    assert batch.attention_mask[0] == [0, 0, 1]


_LOADED: dict[str, Tokenizer] = {}


def _loaded(name: str) -> Tokenizer:
    return _LOADED.setdefault(name, load_tokenizer(name))
