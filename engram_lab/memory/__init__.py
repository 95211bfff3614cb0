"""The n-gram memory: addresses by hashing, rows by look-up, a gate, a short convolution.

Reading order: `config`, `hashing` (with `primes`), `table`, `gate`, `conv`, `engram`, `state`.
"""
