"""The tables `artifacts`, `demonstrations` and `counters`: what was learned, and what to learn from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from foretool.storage.records import Artifact, Episode, Wording
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import STRINGS, Table, insert_into, raise_counter, read_counter, read_kept

KEPT_MODELS: Final = 3
"""Models of a kind whose bytes are kept: the served one, and those that a rollback can bring back."""

_COLUMNS = "id, kind, number, created_at, sha256, length(data), active, previous, promoted_at, report"
_ACTIVE = f"SELECT {_COLUMNS} FROM artifacts WHERE active = 1 ORDER BY kind"  # noqa: S608  # constants
_HISTORY = f"SELECT {_COLUMNS} FROM artifacts WHERE (? IS NULL OR kind = ?) ORDER BY id DESC LIMIT ?"  # noqa: S608
_ADD = insert_into(
    "artifacts", ("kind", "number", "created_at", "sha256", "data", "active", "previous", "promoted_at", "report")
)

_YOUNGER = ("arguments", "failed")
_episode = msgspec.json.Decoder(Episode)


class ArtifactStore(Subject):
    """What was learned, as bytes with a checksum, and what it was learned from.

    Every trained model has one record; one that was not better than the served model keeps only its report. At most one
    model of a kind is active, which means served. Bytes whose checksum does not match are never returned.
    """

    @property
    def version(self) -> int:
        """Rises whenever other models are to be served, or a learning run has ended; 0 before the first."""
        return read_counter(self._database, "learned") or 0

    def bump_version(self) -> None:
        """Make running proxies read the models again, and their lists begin a new epoch."""
        with self._database.atomic():
            raise_counter(self._database, "learned")
            # Replicas are told of every statement about this table, of the counters they are not.
            self._database.run("UPDATE artifacts SET active = 0 WHERE id = 0")

    def add(
        self, kind: str, data: bytes, report: dict[str, Any], *, promote: bool, at: float | None = None
    ) -> Artifact:
        """Keep a model and serve it from now on if `promote`; otherwise keep only its report."""
        now = time.time() if at is None else at
        with self._database.atomic():
            before = self.active(kind)
            number = 1 + max((each.number for each in self.history(kind)), default=0)
            row = (
                kind, number, now, hashlib.sha256(data).hexdigest(), data if promote else b"", int(promote),
                before.id if before and promote else 0, now if promote else 0.0, msgspec.json.encode(report).decode(),
            )  # fmt: skip
            if promote:
                self._database.run("UPDATE artifacts SET active = 0 WHERE kind = ?", (kind,))
            self._database.run(_ADD, row)
            self._drop_old_data(kind)
        return self.history(kind)[0]

    def _drop_old_data(self, kind: str) -> None:
        replaced = [each for each in self.history(kind) if each.size and not each.active]
        old = [(b"", each.id) for each in replaced[KEPT_MODELS - 1 :]]
        self._database.run_all("UPDATE artifacts SET data = ? WHERE id = ?", old)

    def active(self, kind: str) -> Artifact | None:
        return self.served().get(kind)

    def served(self) -> dict[str, Artifact]:
        found = map(_read_artifact, self._database.rows(_ACTIVE))
        return {each.kind: each for each in found}

    def history(self, kind: str | None = None, limit: int = -1) -> list[Artifact]:
        """Return the models of one kind, or of all, the newest first."""
        return [_read_artifact(row) for row in self._database.rows(_HISTORY, (kind, kind, limit))]

    def load_intact(self, kind: str) -> list[tuple[Artifact, bytes]]:
        """Return the served model and its predecessors whose bytes match their checksum, in the order to try them."""
        active = self.active(kind)
        if active is None:
            return []
        chain, known = [active], {each.id: each for each in self.history(kind)}
        while (previous := known.get(chain[-1].previous)) is not None and len(chain) < KEPT_MODELS:
            chain.append(previous)
        sql = "SELECT data FROM artifacts WHERE id = ?"
        found = [(each, bytes(self._database.rows(sql, (each.id,))[0][0])) for each in chain]
        return [(each, data) for each, data in found if data and hashlib.sha256(data).hexdigest() == each.sha256]

    def roll_back(self, kind: str) -> tuple[Artifact, Artifact | None] | None:
        """Serve again the model that the served one had replaced.

        Returns the model put away, and the one served now (None if there was none before it). Returns None if no model
        of this kind is served.
        """
        with self._database.atomic():
            active = self.active(kind)
            if active is None:
                return None
            previous = next((each for each in self.history(kind) if each.id == active.previous and each.size), None)
            self._database.run("UPDATE artifacts SET active = 0 WHERE kind = ?", (kind,))
            if previous is not None:
                self._database.run("UPDATE artifacts SET active = 1 WHERE id = ?", (previous.id,))
            self.bump_version()
        return active, previous

    def add_demonstrations(self, episodes: Sequence[Episode], at: float | None = None) -> int:
        """Keep imported episodes, each once; return how many were new."""
        now = time.time() if at is None else at
        before = self.count_demonstrations()
        encoded = [_encode_episode(self._hide_secrets(each)) for each in episodes]
        self._database.write_all(
            "INSERT INTO demonstrations (digest, episode, at) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING",
            [(hashlib.sha256(each).digest(), each.decode(), now) for each in encoded],
        )
        return self.count_demonstrations() - before

    def _hide_secrets(self, episode: Episode) -> Episode:
        clean = self._database.clean
        return msgspec.structs.replace(
            episode, tasks=tuple(map(clean, episode.tasks)), arguments=tuple(map(clean, episode.arguments))
        )

    def latest_demonstrations(self) -> Iterator[Episode]:
        """Yield the imported episodes, the one imported last first."""
        # By rowid, the order of import, since nothing has to be sorted for that.
        for (encoded,) in self._database.each_row("SELECT episode FROM demonstrations ORDER BY rowid DESC"):
            yield _episode.decode(encoded)

    def count_demonstrations(self) -> int:
        return int(self._database.rows("SELECT count(*) FROM demonstrations")[0][0])


def _encode_episode(episode: Episode) -> bytes:
    """Encode an episode without the fields that are younger than the table, where they are empty: the digest of a
    demonstration must not change, or importing a file again would add all of it again."""
    fields = msgspec.to_builtins(episode)
    return msgspec.json.encode({name: value for name, value in fields.items() if value or name not in _YOUNGER})


def _read_artifact(row: Sequence[Any]) -> Artifact:
    id, kind, number, created_at, sha256, size, active, previous, promoted_at, encoded = row
    report = read_kept(msgspec.json.decode, encoded, "artifacts")
    return Artifact(id, kind, number, created_at, sha256, size, bool(active), previous, promoted_at, report)


# The table `vectors`: embeddings, so that each encoder embeds a text only once.
#
# A row is found by the encoder's key (its name and a hash of its weights) and the hash of the text. The vector is
# kept as the bytes of its float32 values.


_AT_ONCE: Final = 500
"""Vectors that one query reads."""


class VectorStore(Subject):
    """Embeddings, by the encoder's key and the hash of the text."""

    def save(self, encoder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors by the hash of their text."""
        now = time.time()
        self._database.write_all(
            "INSERT INTO vectors (encoder, digest, data, used_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (encoder, digest) DO UPDATE SET data = excluded.data, used_at = excluded.used_at",
            ((encoder, digest, data, now) for digest, data in vectors.items()),
        )

    def load(self, encoder: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the kept vectors by hash; hashes without a vector are left out. From any thread."""
        with self._database.own() as database:
            found: dict[bytes, bytes] = {}
            wanted = iter(digests)
            while part := tuple(islice(wanted, _AT_ONCE)):
                marks = ", ".join("?" * len(part))
                sql = f"SELECT digest, data FROM vectors WHERE encoder = ? AND digest IN ({marks})"  # noqa: S608
                found.update(database.rows(sql, (encoder, *part)))
            return found

    def missing(self, encoder: str, digests: Collection[bytes]) -> set[bytes]:
        """Return the hashes of those texts of which no vector by this encoder is kept; from any thread."""
        with self._database.own() as database:
            rows = database.each_row("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))
            return set(digests).difference(digest for (digest,) in rows)

    def forget(self, digests: Collection[bytes]) -> int:
        """Delete the vectors of these texts, of every encoder; return how many there were."""
        before = self._count()
        self._database.write_all("DELETE FROM vectors WHERE digest = ?", ((digest,) for digest in digests))
        return before - self._count()

    def count(self, digests: Collection[bytes]) -> int:
        """Return how many vectors these texts have, of every encoder."""
        return sum(digest in digests for (digest,) in self._database.rows("SELECT digest FROM vectors"))

    def _count(self) -> int:
        return int(self._database.rows("SELECT count(*) FROM vectors")[0][0])

    def known(self, encoder: str) -> set[bytes]:
        """Return the hashes of all texts that this encoder has embedded."""
        rows = self._database.rows("SELECT digest FROM vectors WHERE encoder = ?", (encoder,))
        return {digest for (digest,) in rows}


_WORDINGS: Final = Table("wordings", Wording, {"texts": STRINGS}, said=("server", "tool", "model"))


class WordingStore(Subject):
    """How people word wishes, by the text of the tool that a language model was given; one answer for each text."""

    def save(self, wording: Wording) -> None:
        """Keep an answer, in place of earlier ones for the same text or the same tool."""
        with self._database.atomic():
            self._database.run(
                "DELETE FROM wordings WHERE server = ? AND tool = ? AND digest <> ?",
                (wording.server, wording.tool, wording.digest),
            )
            self._database.run(_WORDINGS.upsert("digest"), _WORDINGS.row(wording))

    def all(self) -> list[Wording]:
        return [_WORDINGS.read(row) for row in self._database.rows(f"{_WORDINGS.select} ORDER BY server, tool, at")]

    def remove(self, server: str = "", model: str = "") -> int:
        """Delete the answers of one server or model, or all; return how many there were."""
        where = "(server = :server OR :server = '') AND (model = :model OR :model = '')"
        sql = f"DELETE FROM wordings WHERE {where}"  # noqa: S608  # a constant
        return self._database.run(sql, {"server": server, "model": model})
