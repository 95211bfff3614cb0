"""From text to token ids: tokenizers, the token map, real and generated corpora.

- `tokenizer`: the shipped byte-pair tokenizers and a byte tokenizer.
- `compression`: many tokenizer ids to one canonical id.
- `documents`, `batches`: token ids by document, their split, packed and padded batches of them.
- `bundle`: the text that ships in `data/corpora`, checked against its manifest.
- `corpus`: that text as documents; also the names of `documents`, `batches` and `bundle`.
- `synthetic`: generated documents whose entropy is known.
"""
