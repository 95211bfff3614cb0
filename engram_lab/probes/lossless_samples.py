"""Sampled decoding held against the exact law of a small target, text by text."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Int64
from scipy.stats import chi2
from torch import Tensor

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, LengthRule, speculative_generate
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.lossless import total_variation
from engram_lab.scales import pick

MOST_TEXTS = 20_000
"""Texts whose chances are worked out one by one."""
LEAST_EXPECTED = 5
"""Texts expected less often than this are counted together in a chi-square."""


def random_pair(
    vocab: int = 5, block: int = 3, *, width: int = 16, seed: int = 0
) -> tuple[Target, Drafter]:
    """An untrained target of a few tokens, and an untrained DSpark drafter for it.

    Args:
        vocab: tokens; the last is also the drafter's mask.
        block: drafts of a round.
        width: of both.
        seed: of all weights.
    """
    shape = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 2 * width}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = EngramLMConfig(
            vocab_size=vocab, hidden_size=width, num_hidden_layers=2, initializer_range=0.4, **shape
        )
        target = Target(EngramLM(config).eval(), (0,))
        draft = DraftConfig(
            vocab_size=vocab,
            hidden_size=width,
            target_depth=2,
            target_layer_ids=(0,),
            mask_token_id=vocab - 1,
            block_size=block,
            head_size=width // 2,
            markov_rank=4,
            confidence=True,
            **shape,
        )
        drafter = Drafter(draft, target).eval()
        torch.nn.init.normal_(drafter.markov_head.markov_w2.weight)  # a fresh head is silent
    return target, drafter


def text_law(
    target: Target, prompt: Int64[Tensor, "seq"], sampling: Sampling, *, tokens: int = 3
) -> Float[np.ndarray, "..."]:
    """Chance of every continuation of a prompt, by the chain rule over all texts.

    Args:
        target: a model of few tokens.
        prompt: what stands already.
        sampling: temperature and truncation.
        tokens: length of the continuations.

    Returns:
        One axis for every token, each of the size of the vocabulary.

    Raises:
        ValueError: if there are too many texts, naming how many.
    """
    vocab = target.vocab_size
    if tokens < 1 or vocab**tokens > MOST_TEXTS:
        raise ValueError(
            f"text_law goes through all texts, at most {MOST_TEXTS:,}; {tokens} tokens of a "
            f"vocabulary of {vocab} are {vocab**tokens:,}"
        )
    before = torch.tensor(list(itertools.product(range(vocab), repeat=tokens - 1)))
    before = before.reshape(vocab ** (tokens - 1), tokens - 1).long()
    ids = torch.cat([prompt.cpu().expand(len(before), -1), before], dim=1).to(target.device)
    logits = target.read(ids).logits[:, len(prompt) - 1 :]
    probs = sampling.probs(logits.double()).cpu().numpy()
    shape = (vocab,) * (tokens - 1)
    law = np.ones(())
    for place in range(tokens):
        # rows that share the first `place` tokens have the same law of the next
        nexts = probs[:, place].reshape(*shape, vocab)
        nexts = nexts[(slice(None),) * place + (0,) * (tokens - 1 - place)]
        law = law[..., None] * nexts
    return law


def sampled_counts(
    target: Target,
    drafter: Proposer | None,
    prompt: Int64[Tensor, "seq"],
    sampling: Sampling,
    *,
    tokens: int = 3,
    sequences: int = 20_000,
    batch: int = 2_000,
    seed: int = 0,
    schedule: LengthRule | None = None,
) -> Int[np.ndarray, "batches *texts"]:
    """How often every continuation is generated.

    Args:
        target: the model whose law is claimed.
        drafter: any; None for plain decoding.
        prompt: what stands already.
        sampling: temperature and truncation.
        tokens: length of the continuations.
        sequences: how many are generated; a multiple of `batch`.
        batch: decoded together.
        seed: of the first batch; each further one has the next.
        schedule: chooses how many drafts are verified.

    Returns:
        Counts of every batch; then one axis for every token.

    Raises:
        ValueError: if the sequences are no whole number of batches.
    """
    if sequences < 1 or batch < 1 or sequences % batch:
        raise ValueError(f"sequences must be a multiple of batch={batch}; got {sequences}")
    vocab = target.vocab_size
    counts = np.zeros((sequences // batch, vocab**tokens), dtype=np.int64)
    places = vocab ** np.arange(tokens)[::-1]
    for index in range(len(counts)):
        config = GenerationConfig(
            max_new_tokens=tokens, sampling=sampling, whole_blocks=True, seed=seed + index
        )
        prompts = prompt.expand(batch, -1)
        found = speculative_generate(target, drafter, prompts, config, schedule=schedule)
        texts = torch.stack(found.token_ids).numpy() @ places
        counts[index] = np.bincount(texts, minlength=vocab**tokens)
    return counts.reshape(len(counts), *(vocab,) * tokens)


def error_frame(
    counts: Int[np.ndarray, "batches *texts"],
    law: Float[np.ndarray, "*texts"],
    *,
    draws: int = 400,
    seed: int = 0,
) -> pd.DataFrame:
    """Distance of growing samples from a law, beside that of samples drawn from it.

    Args:
        counts: as `sampled_counts` gives them; batches are added up one after another.
        law: what they should follow.
        draws: samples drawn from the law itself for every number of sequences.
        seed: of these.

    Returns:
        One row per number of batches, with columns sequences, total_variation, null_low, null_mean,
        null_high (total variation of samples from the law: 2.5 %, mean, 97.5 %), chi_square,
        degrees (of freedom) and p_value.

    Raises:
        ValueError: if counts and law have other shapes, or the law leaves a text out that came.
    """
    if counts.shape[1:] != law.shape:
        raise ValueError(f"counts are of texts {counts.shape[1:]}, the law of {law.shape}")
    generator = np.random.default_rng(seed)
    flat = law.ravel() / law.sum()
    rows = []
    for seen in counts.reshape(len(counts), -1).cumsum(axis=0):
        total = int(seen.sum())
        null = generator.multinomial(total, flat, size=draws) / total
        spread = np.abs(null - flat).sum(axis=1) / 2
        statistic, degrees = _chi_square(seen, flat * total)
        rows.append(
            {
                "sequences": total,
                "total_variation": total_variation(seen / total, flat),
                "null_low": np.quantile(spread, 0.025),
                "null_mean": spread.mean(),
                "null_high": np.quantile(spread, 0.975),
                "chi_square": statistic,
                "degrees": degrees,
                "p_value": float(chi2.sf(statistic, degrees)) if degrees else 1.0,
            }
        )
    return pd.DataFrame(rows)


def compare_samplings(
    samplings: Mapping[str, tuple[Sampling, LengthRule | None]],
    *,
    tokens: int = 3,
    sequences: int | None = None,
    batch: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Samples of the real loop under several settings, against the exact law of each.

    Target and drafter are `random_pair(seed=seed)`.

    Args:
        samplings: temperature and truncation with a schedule, by name.
        tokens: length of the continuations.
        sequences: generated under each setting; None for what fits the scale.
        batch: decoded together; None for an eighth of them.
        seed: of weights and draws.

    Returns:
        Rows of `error_frame`, with a column sampling.
    """
    sequences = sequences or pick(tiny=800, workshop=20_000, full=100_000)
    target, drafter = random_pair(seed=seed)
    prompt, parts = torch.tensor([1, 3, 0]), []
    for name, (sampling, schedule) in samplings.items():
        counts = sampled_counts(
            *(target, drafter, prompt, sampling),
            tokens=tokens,
            sequences=sequences,
            batch=batch or sequences // 8,
            seed=seed,
            schedule=schedule,
        )
        law = text_law(target, prompt, sampling, tokens=tokens)
        parts.append(error_frame(counts, law, seed=seed).assign(sampling=name))
    return pd.concat(parts, ignore_index=True)


def flip_frame(
    target: Target, token_ids: Int64[Tensor, "batch seq"], *, chunks: Sequence[int] = (2, 4, 8)
) -> pd.DataFrame:
    """What becomes of greedy decoding when several positions pass through the target at once.

    The sums inside a kernel are ordered by the shape it is given, so verification may round
    otherwise than decoding does and flip a near-tie. That is no bias, but no equality either.

    Args:
        target: a model in any dtype.
        token_ids: texts.
        chunks: positions of one pass; each is compared with one position at a time.

    Returns:
        One row per chunk, with columns chunk, positions (compared), flips (other most likely
        token), largest_difference (of logits) and smallest_margin (between the two likeliest
        tokens; a flip needs it to be below twice the difference).

    Raises:
        ValueError: if a chunk is below 1.
    """
    if min(chunks, default=1) < 1:
        raise ValueError(f"chunks must be at least 1; got {tuple(chunks)}")
    single = _in_chunks(target, token_ids, 1)
    best = single.topk(2, dim=-1).values
    rows = []
    for chunk in chunks:
        logits = _in_chunks(target, token_ids, chunk)
        rows.append(
            {
                "chunk": chunk,
                "positions": token_ids.numel(),
                "flips": int((logits.argmax(-1) != single.argmax(-1)).sum()),
                "largest_difference": float((logits - single).abs().max()),
                "smallest_margin": float((best[..., 0] - best[..., 1]).min()),
            }
        )
    return pd.DataFrame(rows)


def _in_chunks(target: Target, token_ids: Tensor, chunk: int) -> Tensor:
    cache, parts = target.start(len(token_ids), rewind=chunk), []
    for ids in token_ids.split(chunk, dim=1):
        parts.append(target.forward(ids, cache).logits.float())
        cache.keep(torch.full((len(ids),), ids.shape[1]))
    return torch.cat(parts, dim=1)


def _chi_square(seen: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Statistic and degrees of freedom; rare texts are one cell, impossible ones are refused."""
    if seen[expected == 0].any():
        impossible = int(seen[expected == 0].sum())
        raise ValueError(f"{impossible} sequences are texts that the law gives no chance at all")
    rare = expected < LEAST_EXPECTED
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    seen, expected = seen[expected > 0], expected[expected > 0]
    return float(((seen - expected) ** 2 / expected).sum()), len(expected) - 1
