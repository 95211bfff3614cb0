"""What an edited row does to whoever else reads it, and to texts that do not."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor

from engram_lab.probes.gates import Encoder
from engram_lab.probes.rows import RowUses
from engram_lab.probes.sayings import ROW
from engram_lab.probes.surgery import Surgery
from engram_lab.probes.switches import switched_logits
from engram_lab.tokens.documents import Documents

Prompt = str | Tensor
EDITED = "edited prompt"


def collateral_frame(
    surgery: Surgery, prompts: Mapping[str, Sequence[Prompt]], tokenizer: Encoder
) -> pd.DataFrame:
    """Next-token probabilities after the edited prompt and after others, before and after the edit.

    Args:
        surgery: an edit in force; it is undone for the readings before it and put back.
        prompts: by group, for instance `{"share a row": sharing_prompts(...), "random":
            random_prompts(...)}`; each one a text, or ids of one.
        tokenizer: the one the model was trained with.

    Returns:
        One row per prompt, the edited one first (group "edited prompt"), with columns group,
        prompt (as text), shared_rows (how often it reads an edited row), shared_last (at its last
        token), token (its most probable next token before the edit), before and after
        (probabilities of that token), target_before and target_after (of the token that the edit is
        about) and kl_nats (from the whole list before to that after).

    Raises:
        ValueError: if a prompt is empty or too long.
    """
    chosen = [(EDITED, surgery.prompt_ids)]
    chosen += [
        (group, _ids(prompt, tokenizer)) for group, some in prompts.items() for prompt in some
    ]
    after = [_log_probs(surgery, ids) for _, ids in chosen]
    with surgery.undone():
        before = [_log_probs(surgery, ids) for _, ids in chosen]
    records = []
    for (group, ids), old, new in zip(chosen, before, after, strict=True):
        shared, top, target = surgery.shared(ids), int(old.argmax()), surgery.target_id
        records.append(
            {
                "group": group,
                "prompt": "".join(tokenizer.tokens(ids)),
                "shared_rows": int(shared.sum()),
                "shared_last": int(shared[-1]),
                "token": tokenizer.tokens([top])[0],
                "before": float(old[top].exp()),
                "after": float(new[top].exp()),
                "target_before": float(old[target].exp()),
                "target_after": float(new[target].exp()),
                "kl_nats": max(float((old.exp() * (old - new)).sum()), 0.0),
            }
        )
    return pd.DataFrame(records)


def sharing_prompts(
    surgery: Surgery, index: RowUses, *, per_row: int = 4
) -> list[Int64[Tensor, "one seq"]]:
    """The n-grams that share an edited row, as prompts: the most frequent ones of each row.

    Args:
        surgery: an edit in force.
        index: what the rows were trained on.
        per_row: most n-grams taken from one row; the index may know fewer.

    Returns:
        Distinct n-grams. Those that read every edited row of their order, as the edited prompt
        does, are left out: no head tells the two apart.
    """
    sizes = surgery.rows.groupby("order")["row"].size()
    found: dict[tuple[int, ...], Tensor] = {}
    for numbers in surgery.rows[ROW].itertuples(index=False):
        fresh = []
        for key in index.use(*map(int, numbers)).keys:
            ids = torch.tensor([key.token_ids], dtype=torch.int64)
            if key.token_ids not in found and surgery.shared(ids)[-1] < sizes[numbers.order]:
                fresh.append((key.token_ids, ids))
        found.update(fresh[:per_row])
    return list(found.values())


def random_prompts(
    documents: Documents, count: int = 40, *, length: int = 8, seed: int = 0
) -> list[Int64[Tensor, "one seq"]]:
    """Beginnings of documents drawn at random, cut to one length.

    Args:
        documents: texts the model may or may not have seen.
        count: how many prompts; fewer where documents are few.
        length: tokens of a prompt; shorter documents are passed over.
        seed: of the draw.

    Raises:
        ValueError: if a number is not positive or no document is long enough.
    """
    if count < 1 or length < 1:
        raise ValueError(
            f"random_prompts needs count and length of at least 1; got {count} and {length}"
        )
    long_enough = np.flatnonzero(documents.lengths >= length)
    if not len(long_enough):
        raise ValueError(
            f"random_prompts needs a document of at least {length} tokens; the longest of "
            f"{documents.name} has {documents.lengths.max()}"
        )
    chosen = np.random.default_rng(seed).permutation(long_enough)[:count]
    return [torch.from_numpy(documents[int(i)][:length].astype(np.int64))[None] for i in chosen]


def _ids(prompt: Prompt, tokenizer: Encoder) -> Int64[Tensor, "one seq"]:
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt.reshape(1, -1)
    if not ids.numel():
        raise ValueError(f"a prompt must hold at least one token; got {prompt!r}")
    return ids


def _log_probs(surgery: Surgery, ids: Int64[Tensor, "one seq"]) -> Tensor:
    return switched_logits(surgery.model, ids, [()])[0].log_softmax(-1)
