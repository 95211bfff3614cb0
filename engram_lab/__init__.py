"""engram_lab: a lab bench for language models with n-gram memory, experts and draft heads.

Axis names are words and mean the same everywhere, in annotations, einops patterns and prose:

    batch   sequences computed together           order   n-gram orders 2..N of the memory
    seq     positions of a sequence               table   order x hash head, order-major
    hidden  width of the residual stream          row     width of one table's embedding
    vocab   tokenizer ids                         mem     all rows of a position, concatenated
    layer   blocks, counted from 0                expert  routed experts of one block
    head    attention heads, hash heads           topk    experts that see one token
    branch  residual branches (1 by default)      block   draft positions
"""

import importlib

__version__ = "0.1.0"

_PUBLIC = {
    "HookPoint": "engram_lab.hooks",
    "record": "engram_lab.hooks",
    "edit": "engram_lab.hooks",
    "fingerprint": "engram_lab.configs",
    "from_json": "engram_lab.configs",
    "to_json": "engram_lab.configs",
    "load_published": "engram_lab.published",
    "Tokenizer": "engram_lab.tokens.tokenizer",
    "load_tokenizer": "engram_lab.tokens.tokenizer",
    "VocabCompression": "engram_lab.tokens.compression",
    "EngramConfig": "engram_lab.memory.config",
    "NgramHash": "engram_lab.memory.hashing",
    "MemoryTable": "engram_lab.memory.table",
    "MemoryContext": "engram_lab.memory.history",
    "MemoryState": "engram_lab.memory.state",
    "context_gate": "engram_lab.memory.gate",
    "Engram": "engram_lab.memory.engram",
    "EngramLM": "engram_lab.model.modeling",
    "EngramLMConfig": "engram_lab.model.config",
    "MoEConfig": "engram_lab.model.config",
    "allocate": "engram_lab.model.budget",
    "budget": "engram_lab.model.budget",
    "residual_stream": "engram_lab.model.residual",
    "DraftConfig": "engram_lab.draft.config",
    "Target": "engram_lab.draft.target",
    "Drafter": "engram_lab.draft.drafter",
    "ReleasedConfig": "engram_lab.draft.released_config",
    "ReleasedDrafter": "engram_lab.draft.released",
    "Sampling": "engram_lab.draft.sampling",
    "GenerationConfig": "engram_lab.draft.generate",
    "speculative_generate": "engram_lab.draft.generate",
    "DataConfig": "engram_lab.training.config",
    "RunConfig": "engram_lab.training.config",
    "TrainConfig": "engram_lab.training.config",
    "fit": "engram_lab.training.fit",
    "load_or_fit": "engram_lab.training.fit",
    "DraftRunConfig": "engram_lab.training.draft_config",
    "fit_drafter": "engram_lab.training.draft_fit",
    "load_or_fit_drafter": "engram_lab.training.draft_fit",
    "acceptance_frame": "engram_lab.probes.acceptance",
    "gate_frame": "engram_lab.probes.gates",
    "lens_frame": "engram_lab.probes.lens",
    "logit_lens": "engram_lab.probes.lens",
    "Sweep": "engram_lab.experiments.sweep",
    "run": "engram_lab.experiments.sweep",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for; keeps `import engram_lab` fast."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'engram_lab' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
