"""What came of a run with a model: one JSON line an outcome, and the raw conversation beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

ROWS: Final = "rows.jsonl"


class Keyed(Protocol):
    """An outcome."""

    @property
    def key(self) -> tuple[str | int, ...]:
        """What no other outcome of the run has: model, arm, task and so on."""
        ...


T = TypeVar("T", bound=Keyed)


def read_outcomes(folder: Path, kind: type[T]) -> list[T]:
    """What is kept in a folder of results."""
    rows = folder / ROWS
    lines = rows.read_bytes().splitlines() if rows.exists() else []
    return [msgspec.json.decode(line, type=kind) for line in lines]


class Results(Generic[T]):
    """A folder of results, where a run that was ended goes on."""

    def __init__(self, folder: Path, kind: type[T]) -> None:
        self._rows = folder / ROWS
        self._raw = folder / "conversations"
        self._raw.mkdir(parents=True, exist_ok=True)
        self._done = {outcome.key for outcome in read_outcomes(folder, kind)}

    def has(self, *key: str | int) -> bool:
        """Whether an outcome was there when the run began."""
        return key in self._done

    def keep(self, outcome: T, conversation: Mapping[str, Any]) -> None:
        """Keep an outcome, and the conversation that it came of."""
        raw = msgspec.json.encode({**conversation, "outcome": outcome})
        name = "-".join(map(str, outcome.key)).replace("/", "_")
        (self._raw / f"{name}.json").write_bytes(msgspec.json.format(raw, indent=1))
        with self._rows.open("ab") as rows:
            rows.write(msgspec.json.encode(outcome) + b"\n")
