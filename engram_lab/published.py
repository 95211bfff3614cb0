"""The papers' numbers, with the quality grade each of them carries.

Every row names its `source` and its `kind`: exact, digitised, approx, secondary, derived or
unverified. Figures draw approx, secondary and unverified values hollow.
"""

import difflib

import pandas as pd

from engram_lab.paths import published_dir

KINDS = ("exact", "digitised", "approx", "secondary", "derived", "unverified")


def published_names() -> list[str]:
    """Names that `load_published` knows."""
    return sorted(path.stem for path in published_dir().glob("*.csv"))


def load_published(name: str) -> pd.DataFrame:
    """Published values of one table or figure, one observation per row, with `source` and `kind`.

    Args:
        name: file stem, for instance `engram_allocation`; `published_names()` lists them.

    Raises:
        KeyError: if no such table exists, naming near matches.
    """
    names = published_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
        raise KeyError(f"no published table {name!r}; near matches: {', '.join(near) or 'none'}")
    return pd.read_csv(published_dir() / f"{name}.csv")
