"""Results on disk: one CSV (the frame) and one JSON (how it came about) for each finished point.

Columns with one value in all rows stand in the JSON alone ("constants"); loading puts them back.
The JSON is written last and holds the row count and the SHA-256 of the CSV, so a pair that was cut
short by a crash, a full disk or a hand is recognised and computed again. A file lock for each point
keeps two runs apart.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from engram_lab.configs import same_config
from engram_lab.paths import checkout, results_dir

FREE_BYTES = 1_000_000  # below this no point is begun: its result could not be stored


class StoreError(RuntimeError):
    """A result could not be stored; what was stored before is untouched."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """Folder with the results of one sweep.

    Attributes:
        folder: where the pairs `<fingerprint>.csv` and `<fingerprint>.json` lie.
        shipped: folder of the results that came with the checkout, read where `folder` has none.
        identity: device and inode of the folder at the start of a run; None outside a run.
    """

    folder: Path
    shipped: Path | None = None
    identity: tuple[int, int] | None = None

    @classmethod
    def of(cls, name: str) -> "Store":
        """Store of the sweep `name` below `paths.results_dir()`; nothing is made on disk."""
        return cls(folder=results_dir() / name, shipped=_shipped(name))

    @classmethod
    def opened(cls, name: str) -> "Store":
        """Store of the sweep `name`, its folder made if need be and remembered.

        Raises:
            StoreError: if the folder cannot be made.
        """
        folder = results_dir() / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the results folder {folder} cannot be made ({error.strerror or error}). "
                "Set ENGRAM_LAB_HOME to a folder you may write to."
            ) from error
        return cls(folder=folder, shipped=_shipped(name), identity=_identity(folder))

    def check(self) -> None:
        """Refuse to go on where a result could not be stored.

        Raises:
            StoreError: if the folder was deleted or replaced since the run began, or the disk is
                full.
        """
        if self.identity is None or _identity(self.folder) != self.identity:
            raise StoreError(
                f"the results folder {self.folder} was deleted or replaced during the run; "
                "nothing more is stored. Start the run again."
            )
        if shutil.disk_usage(self.folder).free < FREE_BYTES:
            raise StoreError(_no_space(self.folder))

    def load(
        self, name: str, point: Mapping[str, Any], consequence: str = "", *, config: Any = None
    ) -> pd.DataFrame | None:
        """Rows stored for one point, or None if there are none or they are damaged.

        Args:
            name: fingerprint of the point's config.
            point: grid values of the point; a pair stored for other values counts as damaged.
            consequence: ends the warning that names a damaged pair, for instance "it is computed
                again"; without it there is no warning.
            config: config of the point; a pair whose record states another one counts as damaged
                (a default may have changed since, which the name does not tell).
        """
        table, record = self._paths(name)
        if not table.exists() and not record.exists():
            if self.shipped is None:
                return None
            table, record = self.shipped / table.name, self.shipped / record.name
            if not table.exists():
                return None
        try:
            return _read(table, record, point, config)
        except (OSError, ValueError, KeyError) as error:
            if consequence:
                warnings.warn(f"result {table} is damaged: {error}; {consequence}", stacklevel=3)
            return None

    def holds(
        self, name: str, point: Mapping[str, Any], consequence: str = "", *, config: Any = None
    ) -> bool:
        """Whether sound rows of one point are stored; arguments as for `load`."""
        return self.load(name, point, consequence, config=config) is not None

    def save(self, name: str, frame: pd.DataFrame, record: Mapping[str, Any]) -> None:
        """Store the rows of one point and the record of how they came about.

        Raises:
            StoreError: if the folder is gone, the disk is full or a file cannot be written.
        """
        self.check()
        table, description = self._paths(name)
        constants = _constants(frame)
        varying = frame.drop(columns=list(constants))
        content = varying.to_csv(index=False, lineterminator="\n").encode()
        seal = {
            "columns": list(frame.columns),
            "constants": constants,
            "rows": len(frame),
            "sha256": _sha256(content),
        }
        text = json.dumps({**record, **seal}, indent=2, sort_keys=True, ensure_ascii=False)
        for stale in self.folder.glob(f".{name}.*.tmp"):  # left by a killed run; the lock is ours
            stale.unlink(missing_ok=True)
        try:
            write_atomic(table, content)
            write_atomic(description, (text + "\n").encode())
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = error.strerror or error
            raise StoreError(
                _no_space(self.folder) if full else f"result {table} cannot be written ({reason})"
            ) from error

    @contextmanager
    def locked(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold the lock of one point; yields False if another run holds it and `wait` is False.

        Lock files lie beside the folders of the sweeps, out of sight of git.

        Raises:
            StoreError: if the folder of the sweep is gone.
        """
        self.check()
        folder = self.folder.parent / ".locks"
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        lock = FileLock(folder / f"{self.folder.name}-{name}.lock", timeout=-1 if wait else 0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.csv", self.folder / f"{name}.json"


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part.

    Raises:
        OSError: as the system reports it; no temporary file stays behind.
    """
    temporary = path.parent / f".{path.stem}.{os.getpid()}{path.suffix}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _shipped(name: str) -> Path | None:
    root = checkout()
    return root / "data" / "results" / name if root else None


def _read(table: Path, description: Path, point: Mapping[str, Any], config: Any) -> pd.DataFrame:
    for path in (table, description):
        if not path.exists():
            raise ValueError(f"{path.name} is missing")
    try:
        record = json.loads(description.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{description.name} is not JSON ({error})") from error
    content = table.read_bytes()
    if not isinstance(record, dict) or record.get("sha256") != _sha256(content):
        raise ValueError(f"its SHA-256 differs from the one in {description.name}")
    frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])
    if len(frame) != record["rows"]:
        raise ValueError(f"it has {len(frame)} rows, {description.name} says {record['rows']}")
    if record["point"] != json.loads(json.dumps(point)):
        raise ValueError(f"it was stored for the point {record['point']}, not for {dict(point)}")
    if config is not None and not same_config(record["config"], config):
        raise ValueError("it was stored for a config with other values (a default has changed)")
    constants = {name: np.nan if v is None else v for name, v in record["constants"].items()}
    return frame.assign(**constants)[record["columns"]]


def _constants(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns of a frame of several rows that have one value, but never all of them."""
    if len(frame) < 2:
        return {}
    same = [name for name in frame if frame[name].nunique(dropna=False) == 1]
    same = same[: len(frame.columns) - 1]
    values = {name: frame[name].iloc[0] for name in same}
    return {
        name: None if pd.isna(value) else getattr(value, "item", lambda value=value: value)()
        for name, value in values.items()
    }


def _sha256(content: bytes) -> str:
    """Digest of a text file whatever line ends a checkout gave it."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _no_space(folder: Path) -> str:
    return (
        f"no space is left on the disk of {folder}; the points stored before are kept. "
        "Free some space, or set ENGRAM_LAB_HOME to another disk, and run again; "
        "finished points are skipped."
    )
