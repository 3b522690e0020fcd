"""Which values of one tool's results came back as arguments of another: the names of the fields, never the values."""

from __future__ import annotations

from collections.abc import Mapping

from foretool.storage.records import Flow, ToolId
from foretool.storage.store import Store

Key = tuple[ToolId, ToolId, str, str]
"""Who gave, who took, the field it was given in ("" where that is not known), the parameter it was taken in."""


class Flows:
    """The flows in one open store; other proxies add to the same ones. May raise `StorageError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, seen: Mapping[Key, int], at: float) -> None:
        """Count flows that were seen again."""
        self._store.write_all(
            "INSERT INTO flows (before, after, field, parameter, times, last_at) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (before, after, field, parameter)"
            " DO UPDATE SET times = times + excluded.times, last_at = excluded.last_at",
            ((*key, times, at) for key, times in seen.items()),
        )

    def all(self) -> list[Flow]:
        """The most frequent first."""
        rows = self._store.read(
            "SELECT before, after, field, parameter, times, last_at FROM flows"
            " ORDER BY times DESC, before, after, field, parameter"
        )
        return [Flow(*row) for row in rows]

    def prune(self, before: float) -> None:
        """Forget what was not seen since."""
        self._store.write_all("DELETE FROM flows WHERE last_at < ?", [(before,)])
