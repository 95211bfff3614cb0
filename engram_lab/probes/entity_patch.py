"""Where a state says who is meant: put it into a neutral prompt, and read what the model says."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from engram_lab.hooks import edit, record
from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.entity_mentions import Interval
from engram_lab.probes.intervals import RESAMPLES
from engram_lab.probes.lens_text import Reader

PROMPT = "cat->cat; 135->135; hello->hello; x->"
PLACEHOLDER = "x"
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A name, a prompt to carry its state into, and what the prompt should then say.

    Attributes:
        entity: whose name it is.
        source: token ids up to the last one of the name.
        prompt: token ids of the decoding prompt.
        placeholder: place in the prompt where the state goes.
        answers: runs of token ids, any of which shows that the entity was understood.
    """

    entity: int
    source: tuple[int, ...]
    prompt: tuple[int, ...]
    placeholder: int
    answers: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse empty texts and answers, and a placeholder outside the prompt."""
        if not self.source or not self.answers or not all(self.answers):
            raise ValueError("a patch needs a source, and answers of at least one token")
        if not 0 <= self.placeholder < len(self.prompt):
            raise ValueError(
                f"placeholder must lie in 0..{len(self.prompt) - 1} (the prompt); got "
                f"{self.placeholder}"
            )


def text_patch(
    tokenizer: Reader,
    source: str,
    answers: Sequence[str],
    *,
    entity: int = 0,
    prompt: str = PROMPT,
    placeholder: str = PLACEHOLDER,
) -> Patch:
    """A patch in words.

    Args:
        tokenizer: of the model, ours or one from `transformers`.
        source: text that ends with the name.
        answers: words that show the entity was understood, such as the name or an attribute.
        entity: number of the entity.
        prompt: the decoding prompt.
        placeholder: text whose last occurrence in the prompt is replaced; the state goes to the
            last token of what precedes its end.

    Raises:
        ValueError: if the prompt lacks the placeholder.
    """
    encode, plain = _encoder(tokenizer), _encoder(tokenizer, opened=False)
    at = prompt.rfind(placeholder)
    if not placeholder or at < 0:
        raise ValueError(f"the prompt must hold the placeholder {placeholder!r}; got {prompt!r}")
    before, after = encode(prompt[: at + len(placeholder)]), encode(prompt)
    if after[: len(before)] != before:  # a token that reaches beyond the placeholder
        raise ValueError(
            f"the tokenizer joins {placeholder!r} with what follows it in {prompt!r}; put a space "
            "behind the placeholder"
        )
    return Patch(
        entity=entity,
        source=tuple(encode(source)),
        prompt=tuple(after),
        placeholder=len(before) - 1,
        answers=tuple(tuple(plain(form)) for answer in answers for form in (answer, f" {answer}")),
    )


def patch_frame(
    model: nn.Module,
    patches: Sequence[Patch],
    *,
    into: int | None = None,
    new_tokens: int = 1,
    tokenizer: Reader | None = None,
    anatomy: Anatomy | None = None,
) -> pd.DataFrame:
    """What a neutral prompt says when it holds a name's state from each layer of another text.

    The state that leaves block l - 1 at the end of the name replaces the one that leaves the same
    block, or a fixed one, at the prompt's placeholder; later blocks and positions go on from there.
    What the prompt says is its most likely continuation.

    Args:
        model: an `EngramLM` or a decoder from `transformers`; left as it was.
        patches: names and prompts.
        into: layer at which the state enters the prompt, 1 to the number of blocks; None takes the
            layer it came from.
        new_tokens: tokens to generate.
        tokenizer: gives the text of what was generated; without it ids are shown.
        anatomy: where the model's parts are; None asks `anatomy_of`.

    Returns:
        A row per layer and patch; columns layer (0 is the prompt as it stands, l a state that has
        passed l blocks), patch, entity, generated (text) and hit (whether an answer is in it).

    Raises:
        ValueError: if there is no patch, a text does not fit the context, or `into` or `new_tokens`
            is out of range.

    Source: Ghandeharioun et al. 2024, PatchScopes (arXiv:2401.06102).
    """
    anatomy = anatomy or anatomy_of(model)
    paths = _block_paths(model, anatomy)
    _check(patches, into, new_tokens, len(paths), anatomy)
    rows = []
    for numbers in _alike(patches):
        chosen = [patches[number] for number in numbers]
        said = _continuations(model, chosen, paths, into, new_tokens)
        for layer, generated in enumerate(said):
            for number, patch, ids in zip(numbers, chosen, generated.tolist(), strict=True):
                hit = any(_within(answer, ids) for answer in patch.answers)
                rows.append((layer, number, patch.entity, _text(ids, tokenizer), hit))
    frame = pd.DataFrame(rows, columns=["layer", "patch", "entity", "generated", "hit"])
    return frame.sort_values(["layer", "patch"], ignore_index=True)


def patch_accuracy(
    frame: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Share of hits at each layer, beside that of the prompt as it stands.

    Args:
        frame: rows of `patch_frame`.
        resamples: bootstrap samples of the interval over entities.
        seed: of the resampling.

    Returns:
        Columns layer (from 1), probe ("patch"), entities, mentions (patches), accuracy, low, high,
        control_accuracy (hits without a patch) and selectivity (their difference).
    """
    interval = Interval(resamples=resamples, seed=seed)
    plain = float(frame.loc[frame["layer"] == 0, "hit"].mean())
    rows = [
        {"layer": layer, "probe": "patch"}
        | interval.of_hits(part["hit"].to_numpy(float), part["entity"].to_numpy())
        for layer, part in frame[frame["layer"] > 0].groupby("layer")
    ]
    measured = pd.DataFrame(rows)
    return measured.assign(control_accuracy=plain, selectivity=measured["accuracy"] - plain)


def _continuations(
    model: nn.Module,
    patches: Sequence[Patch],
    paths: Sequence[str],
    into: int | None,
    new_tokens: int,
) -> list[Int64[Tensor, "patch new"]]:
    """What prompts of equal length say: first as they stand, then with a state from each layer."""
    device = next(model.parameters()).device
    source = torch.tensor([patch.source for patch in patches], device=device)
    prompt = torch.tensor([patch.prompt for patch in patches], device=device)
    places = torch.tensor([patch.placeholder for patch in patches], device=device)
    with undisturbed(model):
        with record(model, paths, positions=[-1]) as seen:
            model(source)
        said = [_greedy(model, prompt, new_tokens)]
        for layer, path in enumerate(paths, start=1):
            change = partial(_put, state=seen[path][:, 0], places=places)
            with edit(model, {paths[(into or layer) - 1]: change}):
                said.append(_greedy(model, prompt, new_tokens))
    return said


def _put(value: Tensor, *, state: Tensor, places: Tensor) -> Tensor:
    """A copy of what a block gives, with other states at one place of every row."""
    value = value.clone()
    value[torch.arange(len(places), device=places.device), places] = state.to(value)
    return value


def _greedy(model: nn.Module, prompt: Tensor, new_tokens: int) -> Int64[Tensor, "patch new"]:
    """The most likely continuation; every token reads the whole text anew, patches included."""
    ids = prompt
    for _ in range(new_tokens):
        output = model(ids)
        logits = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, prompt.shape[1] :]


def _alike(patches: Sequence[Patch]) -> Iterator[list[int]]:
    """Numbers of patches whose texts have the same lengths, a batch at a time."""

    def shape(number: int) -> tuple[int, int]:
        return len(patches[number].source), len(patches[number].prompt)

    for _, group in groupby(sorted(range(len(patches)), key=shape), key=shape):
        numbers = list(group)
        parts = -(-len(numbers) // BATCH)
        yield from (part.tolist() for part in np.array_split(numbers, parts))


def _block_paths(model: nn.Module, anatomy: Anatomy) -> list[str]:
    names = {id(module): name for name, module in model.named_modules()}
    return [names[id(block)] for block in anatomy.blocks]


def _check(
    patches: Sequence[Patch], into: int | None, new_tokens: int, blocks: int, anatomy: Anatomy
) -> None:
    if not patches or new_tokens < 1:
        raise ValueError(
            f"patching needs at least one patch and one new token; got {len(patches)} and "
            f"{new_tokens}"
        )
    if into is not None and not 1 <= into <= blocks:
        raise ValueError(f"into must lie in 1..{blocks} (blocks passed); got {into}")
    longest = max(max(len(p.source), len(p.prompt) + new_tokens - 1) for p in patches)
    if anatomy.context is not None and longest > anatomy.context:
        raise ValueError(
            f"the context of this model holds at most {anatomy.context} positions; source or "
            f"prompt with what it generates has {longest}"
        )


def _within(answer: Sequence[int], ids: Sequence[int]) -> bool:
    starts = range(len(ids) - len(answer) + 1)
    return any(tuple(ids[start : start + len(answer)]) == tuple(answer) for start in starts)


def _encoder(tokenizer: Reader, *, opened: bool = True) -> Callable[[str], list[int]]:
    """From a text to ids; one from `transformers` opens texts in its own way, if at all."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer.encode_ids

    def encode(text: str) -> list[int]:
        plain = tokenizer(text, add_special_tokens=False)["input_ids"]
        whole = tokenizer(text, add_special_tokens=opened)["input_ids"]
        starts = (start for start in range(len(whole)) if whole[start:][: len(plain)] == plain)
        return [*whole[: next(starts, 0)], *plain]

    return encode


def _text(ids: Sequence[int], tokenizer: Reader | None) -> str:
    return " ".join(f"#{i}" for i in ids) if tokenizer is None else tokenizer.decode(list(ids))
