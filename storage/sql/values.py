"""Values of rows, as they may be written: JSON, text without unpaired surrogates, and text that others said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Values = Sequence[Any] | Mapping[str, Any]


class Said(str):
    """A text that a user, a client or a server wrote: secrets are taken out of it before it is written.

    Names of tools, keys and hashes are no such texts: they must stay what they are, or records would not fit together.
    """

    __slots__ = ()


def encode_json(value: object) -> str:
    """Return the JSON of a value; an unpaired surrogate in it becomes a question mark."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(_replace_surrogate(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)))


def is_writable(value: object) -> bool:
    return not isinstance(value, str) or value.isascii() or _replace_surrogate(value) == value


def replace_surrogates(values: Values) -> Any:
    """Put question marks in place of unpaired surrogates, which JSON may contain and UTF-8 may not."""
    if isinstance(values, Mapping):
        return {key: _replace_surrogate(value) for key, value in values.items()}
    return [_replace_surrogate(value) for value in values]


def _replace_surrogate(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
