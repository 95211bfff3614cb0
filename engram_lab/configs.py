"""Configs as JSON, and the fingerprint that names caches, checkpoints and results.

A config is a frozen, keyword-only dataclass, possibly nested. A class that cannot be one (the
`transformers` config of our models) takes part through two methods: `canonical_dict()` and the
classmethod `from_canonical_dict(values)`.
"""

import dataclasses
import difflib
import hashlib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Config = TypeVar("Config")


def to_dict(config: object) -> dict[str, Any]:
    """Plain nested dict of a config: dataclasses become dicts, tuples become lists.

    Raises:
        TypeError: if `config` is neither a dataclass instance nor has `canonical_dict()`.
    """
    value = _plain(config)
    if not isinstance(value, dict):
        raise TypeError(
            f"to_dict takes a config (a dataclass instance); got {type(config).__name__}. "
            "Wrap single values in a config first."
        )
    return value


def to_json(config: object, *, indent: int | None = 2) -> str:
    """Canonical JSON of a config: keys sorted, so that equal configs give equal text."""
    return json.dumps(to_dict(config), indent=indent, sort_keys=True, ensure_ascii=False)


def fingerprint(config: object) -> str:
    """First 12 hex digits of the SHA-256 of what a config says beyond the defaults of its class.

    Equal configs have equal names, and a field added later (with a default that means "as before")
    leaves the names of stored results alone. Whoever loads by name also asks `same_config`, which
    notices a default that changed.
    """
    said = _plain(config, skip_defaults=True)
    text = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def same_config(stored: Mapping[str, Any], config: object) -> bool:
    """Whether a stored plain dict says what `config` says, in every key that both know."""
    return _agree(stored, to_dict(config))


def from_json(cls: type[Config], text: str) -> Config:
    """Config of class `cls` from the JSON that `to_json` writes.

    Raises:
        ValueError: if the text is not JSON, a key is unknown (the nearest known key is named) or a
            value breaks a rule of the class.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{cls.__name__} cannot be read: the text is not JSON ({error})"
        ) from error
    return from_dict(cls, values)


def from_dict(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Config of class `cls` from a plain dict; the inverse of `to_dict`.

    Raises:
        ValueError: on an unknown key, naming the nearest known one, or on a missing required key.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{cls.__name__} needs a JSON object; got {type(values).__name__}")
    if hasattr(cls, "from_canonical_dict"):
        return cls.from_canonical_dict(dict(values))
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    check_keys(cls.__name__, values, fields)
    hints = typing.get_type_hints(cls)
    arguments = {key: _restore(hints[key], value) for key, value in values.items()}
    for key, value in arguments.items():
        _check_plain(f"{cls.__name__}.{key}", hints[key], value)
    missing = [
        name
        for name, field in fields.items()
        if name not in arguments
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{cls.__name__} needs {', '.join(missing)}; got only {sorted(values)}")
    return cls(**arguments)


def check_keys(owner: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keys that `owner` does not know.

    Raises:
        ValueError: naming each unknown key and the nearest known one.
    """
    known = list(known)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            hint = f"; nearest known key: {near[0]!r}" if near else ""
            raise ValueError(f"{owner} has no key {key!r}{hint}. Known keys: {', '.join(known)}")


def _plain(value: object, *, skip_defaults: bool = False) -> Any:
    if hasattr(value, "canonical_dict"):
        items, defaults = value.canonical_dict(), value.canonical_defaults()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.init]
        items = {field.name: getattr(value, field.name) for field in fields}
        defaults = {field.name: _default(field) for field in fields}
    elif isinstance(value, Mapping):
        return {str(key): _plain(item, skip_defaults=skip_defaults) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        return [_plain(item, skip_defaults=skip_defaults) for item in value]
    elif value is None or isinstance(value, (bool, int, float, str)):
        return value
    else:
        raise TypeError(
            "a config holds numbers, strings, None, tuples and other configs; "
            f"got {type(value).__name__}"
        )
    return {
        key: _plain(item, skip_defaults=skip_defaults)
        for key, item in items.items()
        if not (skip_defaults and key in defaults and item == defaults[key])
    }


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default  # MISSING where there is none, which equals no value


def _agree(stored: Any, wanted: Any) -> bool:
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return all(_agree(stored[key], wanted[key]) for key in stored.keys() & wanted.keys())
    return stored == wanted


def _check_plain(name: str, hint: Any, value: Any) -> None:
    """Refuse a value whose annotation is a plain type it does not have."""
    if hint in (int, float, str, bool) and type(value) is not hint:
        raise ValueError(f"{name} must be {hint.__name__}; got {value!r} ({type(value).__name__})")


def _member(arguments: tuple[Any, ...], value: Any) -> Any:
    """The type of a union that a JSON value is of: of several configs, the first with its keys."""
    types_ = [argument for argument in arguments if argument is not type(None)]
    if isinstance(value, Mapping):
        for found in types_:
            if dataclasses.is_dataclass(found) and _fits(found, value):
                return found
    return types_[0]


def _fits(cls: type, value: Mapping[str, Any]) -> bool:
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    needed = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return needed <= set(value) <= set(fields)


def _restore(hint: Any, value: Any) -> Any:
    """Give a JSON value the type its annotation asks for (tuples and nested configs)."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _restore(_member(arguments, value), value)
    if origin is tuple and isinstance(value, list):
        item = arguments[0] if arguments else Any
        return tuple(_restore(item, entry) for entry in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_config = isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or hasattr(hint, "from_canonical_dict")
    )
    if is_config and isinstance(value, Mapping):
        return from_dict(hint, value)
    return value
