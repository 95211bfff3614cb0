"""What single rows of a memory say by themselves, through the model's final norm and head."""

import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.memory.engram import Engram
from engram_lab.model.anatomy import anatomy_of
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.gates import Encoder
from engram_lab.probes.switches import memories_of, tables_of

ROW = ["layer", "order", "head", "row"]


def saying_frame(
    model: nn.Module, rows: pd.DataFrame, tokenizer: Encoder, *, top: int = 5
) -> pd.DataFrame:
    """What single rows say: their value alone through the model's final norm and head.

    This is the direct path from a row to the output. What later blocks make of the value is not in
    it, and the norm hides its length, which is told beside it.

    Args:
        rows: columns layer, order, head and row, for instance a `row_frame`.
        top: tokens per row.

    Returns:
        Columns layer, order, head, row, rank (from 0), token_id, token, logit (less its mean over
        the vocabulary) and value_norm (Euclidean length of the value). A row whose value is 0 says
        nothing and has no entry.

    Raises:
        ValueError: if a row does not exist, the model has no memory, or `top` is not positive.
    """
    if top < 1:
        raise ValueError(f"saying_frame needs top of at least 1; got {top}")
    memories, anatomy = memories_of(model), anatomy_of(model)
    parts = []
    with undisturbed(model):
        for layer, some in rows.drop_duplicates(ROW).groupby("layer"):
            if layer not in memories:
                raise ValueError(
                    f"layer must be a block with memory ({', '.join(map(str, memories))}); got "
                    f"{layer}"
                )
            values = _values(memories[int(layer)][1], some)
            parts.append(_sayings(some, values, anatomy.logits(values).float().cpu(), top))
    frame = pd.concat(parts, ignore_index=True)
    frame.insert(6, "token", tokenizer.tokens(frame["token_id"].to_numpy()))
    return frame


def _values(memory: Engram, rows: pd.DataFrame) -> Float[Tensor, "row hidden"]:
    """Value of a memory that holds one row and zeros, less the value of zeros (the bias)."""
    tables = tables_of(memory)
    place = {(order, head): table for table, (order, head, _) in enumerate(tables)}
    chosen = []
    for order, head, row in rows[ROW[1:]].itertuples(index=False):
        table = place.get((order, head))
        if table is None or not 0 <= row < tables[table][2]:
            raise ValueError(
                f"block {memory.layer_id} has no row {row} in the table of order {order} and head "
                f"{head}; its tables (order, head, rows): {tables}"
            )
        chosen.append((table, row))
    table, row = torch.tensor(chosen, device=memory.table.weight.device).T
    read = memory.table.weight[row + memory.table.offsets[table]]
    weight = memory.projection.weight
    alone = weight.new_zeros(len(read) + 1, len(tables), read.shape[-1])  # the last one stays zero
    alone[torch.arange(len(read)), table] = read.to(weight.dtype)
    value = memory.projection(rearrange(alone, "n table row -> n (table row)"))
    value = value[:, -memory.hidden_size :]
    return value[:-1] - value[-1]


def _sayings(rows: pd.DataFrame, values: Tensor, logits: Tensor, top: int) -> pd.DataFrame:
    """The best tokens of each row, one below the other."""
    centred = logits - logits.mean(-1, keepdim=True)
    best = centred.topk(min(top, logits.shape[-1]))
    norms = values.float().norm(dim=-1).cpu()
    speaks = (norms > 0).numpy()
    ranks = best.indices.shape[1]
    frame = rows.loc[speaks, ROW].loc[lambda some: some.index.repeat(ranks)].reset_index(drop=True)
    frame["rank"] = list(range(ranks)) * int(speaks.sum())
    frame["token_id"] = best.indices[speaks].flatten().numpy()
    frame["logit"] = best.values[speaks].flatten().numpy()
    frame["value_norm"] = norms[speaks].repeat_interleave(ranks).numpy()
    return frame
