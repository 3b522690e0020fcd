"""What was learned, as bytes with their checksum; which of it is served, and what it replaced.

One row for every model that was trained, also for those that were not better than what is served: of these only the
report is kept. A model is served while it is `active`; of each kind at most one is. Bytes whose checksum does not match
are never handed out: whoever asks gets the newest whole model that was served before.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.storage.records import Episode
from foretool.storage.store import Store

KEPT: Final = 3
"""Models of a kind whose bytes stay: the one served and those it can be rolled back to."""

_COLUMNS = "id, kind, number, created_at, sha256, length(data), active, previous, promoted_at, report"

_episode = msgspec.json.Decoder(Episode)


class Artifact(Struct, frozen=True):
    """One model, without its bytes."""

    id: int
    kind: str
    """The method, as `Method.name` spells it."""
    number: int
    """Counts up from 1 within its kind."""
    created_at: float
    sha256: str
    """Of its bytes, in hex."""
    size: int
    """Bytes that are kept; 0 for one that was never served, or is too old."""
    active: bool
    previous: int
    """The one it replaced, or 0."""
    promoted_at: float
    """When it was first served; 0 if it never was."""
    report: dict[str, Any]
    """What it was trained on and how it did against what was served then."""


class Artifacts:
    """The models in one open store. Every method may raise `StorageError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def version(self) -> int:
        """Goes up whenever other models are to be served, or a learning run has ended; 0 before the first."""
        rows = self._store.read("SELECT value FROM counters WHERE name = 'learned'")
        return int(rows[0][0]) if rows else 0

    def bump(self) -> None:
        """Have running proxies look again, and their lists begin a new epoch."""
        self._store.write_all(
            "INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1",
            [("learned",)],
        )

    def add(
        self, kind: str, data: bytes, report: dict[str, Any], *, promote: bool, at: float | None = None
    ) -> Artifact:
        """Keep a model; served from now on if `promote`, else its report alone is kept."""
        now = time.time() if at is None else at
        with self._store.atomic():
            before = self.active(kind)
            number = 1 + max((each.number for each in self.history(kind)), default=0)
            row = (
                kind, number, now, hashlib.sha256(data).hexdigest(), data if promote else b"", int(promote),
                before.id if before and promote else 0, now if promote else 0.0, msgspec.json.encode(report).decode(),
            )  # fmt: skip
            if promote:
                self._store.write_all("UPDATE artifacts SET active = 0 WHERE kind = ?", [(kind,)])
            self._store.write_all(
                "INSERT INTO artifacts (kind, number, created_at, sha256, data, active, previous, promoted_at, report)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [row],
            )
            self._drop_old(kind)
        return self.history(kind)[0]

    def _drop_old(self, kind: str) -> None:
        served = [each for each in self.history(kind) if each.size and not each.active]
        old = [(each.id,) for each in served[KEPT - 1 :]]
        if old:
            self._store.write_all("UPDATE artifacts SET data = x'' WHERE id = ?", old)

    def active(self, kind: str) -> Artifact | None:
        """The one that is served."""
        rows = self._store.read(f"SELECT {_COLUMNS} FROM artifacts WHERE kind = ? AND active", (kind,))  # noqa: S608
        return _artifact(rows[0]) if rows else None

    def kinds(self) -> list[str]:
        """Those of which something is served."""
        return [kind for (kind,) in self._store.read("SELECT kind FROM artifacts WHERE active ORDER BY kind")]

    def served(self) -> dict[str, Artifact]:
        """What is served, by kind."""
        rows = self._store.read(f"SELECT {_COLUMNS} FROM artifacts WHERE active ORDER BY kind")  # noqa: S608
        return {each.kind: each for each in map(_artifact, rows)}

    def history(self, kind: str | None = None, limit: int = -1) -> list[Artifact]:
        """The newest first."""
        sql = f"SELECT {_COLUMNS} FROM artifacts WHERE ? IS NULL OR kind = ? ORDER BY id DESC LIMIT ?"  # noqa: S608
        return [_artifact(row) for row in self._store.read(sql, (kind, kind, limit))]

    def whole(self, kind: str) -> list[tuple[Artifact, bytes]]:
        """The one that is served and those before it whose bytes are whole, in the order in which to try them.

        Reads one after the other, so it is short: at most `KEPT`.
        """
        active = self.active(kind)
        if active is None:
            return []
        chain, known = [active], {each.id: each for each in self.history(kind)}
        while (previous := known.get(chain[-1].previous)) is not None and len(chain) < KEPT:
            chain.append(previous)
        found = [(each, self._data(each.id)) for each in chain]
        return [(each, data) for each, data in found if data and hashlib.sha256(data).hexdigest() == each.sha256]

    def _data(self, id: int) -> bytes:
        return bytes(self._store.read("SELECT data FROM artifacts WHERE id = ?", (id,))[0][0])

    def roll_back(self, kind: str) -> tuple[Artifact, Artifact | None] | None:
        """Serve again what the served one had replaced; returns the one put away and the one served now, None where
        nothing was learned before it. None if nothing is served."""
        with self._store.atomic():
            active = self.active(kind)
            if active is None:
                return None
            previous = next((each for each in self.history(kind) if each.id == active.previous and each.size), None)
            self._store.write_all("UPDATE artifacts SET active = 0 WHERE kind = ?", [(kind,)])
            if previous is not None:
                self._store.write_all("UPDATE artifacts SET active = 1 WHERE id = ?", [(previous.id,)])
            self.bump()
        return active, previous

    # Demonstrations

    def add_demonstrations(self, episodes: Sequence[Episode], at: float | None = None) -> int:
        """Keep imported episodes; those already there stay once. Returns how many were new."""
        now = time.time() if at is None else at
        before = self._count()
        rows = []
        for each in episodes:
            told = msgspec.json.encode(each)
            rows.append((hashlib.sha256(told).digest(), told.decode(), now))
        self._store.write_all(
            "INSERT INTO demonstrations (digest, episode, at) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING", rows
        )
        return self._count() - before

    def demonstrations(self) -> list[Episode]:
        """In the order imported."""
        rows = self._store.read("SELECT episode FROM demonstrations ORDER BY at, rowid")
        return [_episode.decode(told) for (told,) in rows]

    def forget_demonstrations(self) -> int:
        """Returns how many there were."""
        count = self._count()
        if count:
            self._store.write_all("DELETE FROM demonstrations WHERE at <= ?", [(float("inf"),)])
        return count

    def _count(self) -> int:
        return int(self._store.read("SELECT count(*) FROM demonstrations")[0][0])


def _artifact(row: Sequence[Any]) -> Artifact:
    id, kind, number, created_at, sha256, size, active, previous, promoted_at, report = row
    told = msgspec.json.decode(report)
    return Artifact(id, kind, number, created_at, sha256, size, bool(active), previous, promoted_at, told)
