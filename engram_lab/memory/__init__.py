"""The n-gram memory: addresses by hashing, rows by look-up, a gate, a short convolution.

In the order of the flow:

- `config`: shape and rules; presets `demo`, `v41`, `qwen`.
- `layout`, `primes`: table lengths and multipliers that follow from a config.
- `history`: what a position may see before it; `state`, `tail`: what a decoding remembers.
- `hashing`, `remainder`: canonical ids to addresses.
- `table`, `row_format`: addresses to rows, and how released tables store them.
- `gate`, `conv`: the formulas, plainly; `fused`: the same for a full pass, in fewer steps.
- `engram`: all of it as one module.
"""
