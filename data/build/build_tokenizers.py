"""Train the shipped byte-level BPE tokenizers on the text bundle.

    python data/build/build_tokenizers.py

Each tokenizer has the ids 0 to 3 for pad, bos, eos and mask, then the 256 bytes, then merges learnt
from all documents. The same bundle and version of `tokenizers` give the same files.
"""

import argparse
import hashlib
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engram_lab.tokens.bundle import load_corpus_texts
from engram_lab.tokens.tokenizer import RESERVED

SIZES = {"bpe4k": 4_096, "bpe16k": 16_384}
WORDS = "|".join(
    [
        r"'(?i:[sdmt]|ll|ve|re)",  # 's, 'll: one token wherever they stand
        # a word with the space or mark before it; a Chinese mark stands by itself
        r"[^\r\n\p{L}\p{M}\p{N}\x{3000}-\x{303f}\x{ff00}-\x{ffef}]?[\p{L}\p{M}]+",
        r"\p{N}{1,2}",  # short runs of digits: 3 would fill a quarter of the small vocabulary
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",  # punctuation, with the line end behind it
        r"\s*[\r\n]+",
        r"\s+(?!\S)",  # white space but for the last space, which belongs to the next word
        r"\s+",
    ]
)
"""How text is cut before merging; no merge crosses a cut."""


def main() -> None:
    """Train and write every tokenizer, and the sums of the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "tokenizers")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = [text for part in load_corpus_texts().values() for text in part]
    print(f"training on {len(texts):,} documents, {sum(map(len, texts)):,} characters")
    for name, size in SIZES.items():
        text = trained(texts, size).to_str(pretty=False)
        path = arguments.out / f"{name}.json"
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {hashlib.sha256(path.read_bytes()).hexdigest()}")


def trained(texts: list[str], size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of `size` entries, the reserved ones first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(RESERVED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=32,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    _check(tokenizer, size)
    return tokenizer


def _check(tokenizer: Tokenizer, size: int) -> None:
    """Refuse a tokenizer of another size, or one with a merge that spells a reserved token."""
    model = json.loads(tokenizer.to_str())["model"]
    spelled = {"".join(merge) for merge in model["merges"]} & set(RESERVED)
    if tokenizer.get_vocab_size() != size or spelled:
        raise ValueError(
            f"a tokenizer needs {size} entries and no merge that spells a reserved token, got "
            f"{tokenizer.get_vocab_size()} and {spelled or 'none'}"
        )


if __name__ == "__main__":
    main()
