"""The encoders of a replay: opened once for all configs that choose the same ones; each text is embedded once.

A replay knows beforehand what its tasks searched with. So threads embed those texts ahead of the player, many at a
time, which takes half the processor time of one after the other and leaves no core without work. Each text
gets the same vector, to the last bit, as a proxy's search of this text alone (`tests/retrieval/encoders/test_onnx.py`).
So the vectors of recorded texts are kept in the store, beside those that learning keeps there, for the next replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

from foretool.server.app import App
from foretool.server.catalog import embedding
from foretool.server.config.settings import Settings
from foretool.storage.engine import StorageError
from foretool.storage.sql.artifacts import VectorStore
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder, Weights


FIRST, AHEAD = 64, 256
"""How many texts are embedded at first, and at most: twice as many each time. Texts of like length share a batch, and
there are more of them among many. A short replay, and a player that searches no more since its list has every tool,
have so many embedded in vain."""
TOGETHER: Final = 16
"""Texts of like length that one thread embeds together, as the encoder does in one batch."""
THREADS: Final = 2
"""Each runs the encoder by itself, so that neither waits for the other as two threads do that share one call."""


class OpenedEncoders:
    """Opens encoders for the settings that choose them, and installs them into the search of an application."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """`texts`: what will be searched with, about in this order."""
        self._texts = texts
        self._opened: dict[tuple[str, ...], tuple[tuple[Weights, ...], list[Remembering]]] = {}
        self._kept: VectorStore | None = None

    def close(self) -> None:
        """Stop embedding ahead, and save what was embedded if the store can be written."""
        for weights, encoders in self._opened.values():
            for one, encoder in zip(weights, encoders, strict=True):
                encoder.close()
                with suppress(StorageError):
                    if self._kept is not None and (new := encoder.take_new()):
                        self._kept.save(one.query_key, _by_digest(new))

    def install(self, settings: Settings, app: App, kept: Store) -> None:
        """Install the encoders of some settings with the vectors of every tool. Words alone rank where that fails."""
        from foretool.retrieval.encoders import EncoderError

        if settings.encoder == "none" or not len(app.catalog):
            return
        try:
            weights, encoders = self._open(settings, kept)
            if weights:
                embedding.serve_encoders(weights, encoders, app.search, kept, app.catalog)
        except (EncoderError, OSError):
            return

    def _open(self, settings: Settings, kept: Store) -> tuple[tuple[Weights, ...], list[Remembering]]:
        key = tuple(str(getattr(settings, name)) for name in embedding.CHOICE)
        if key not in self._opened:
            from foretool.server.catalog.encoders import open_any_encoder

            weights = embedding.find_weights(settings)
            self._kept = kept.vectors
            # Somebody else's model may give a text another vector among other texts.
            encoders = [
                Remembering(
                    open_any_encoder(each, key=settings.encoder_key, in_bulk=True),
                    self._texts,
                    _load(kept.vectors, each.query_key, self._texts),
                    embeds_ahead=not each.is_slow,
                )
                for each in weights
            ]
            self._opened[key] = (weights, encoders)
        return self._opened[key]


class Remembering:
    """An encoder that embeds each text once, because two configs read the same tasks. A thread embeds the `foreseen`
    texts ahead, as soon as those before them are used."""

    def __init__(
        self,
        encoder: Encoder,
        foreseen: Sequence[str] = (),
        known: Mapping[str, Any] | None = None,
        *,
        embeds_ahead: bool = True,
    ) -> None:
        """`known` are vectors of texts that need not be embedded."""
        self._encoder, self.name = encoder, encoder.name
        self._known: dict[str, Any] = dict(known or {})
        self._new: dict[str, None] = {each: None for each in foreseen if each not in self._known}
        """The foreseen texts whose vectors nobody has taken yet."""
        self._documents: dict[str, Any] = {}
        ahead = list(self._new) if embeds_ahead else []
        self._asked = set[str]()
        """The texts that were searched with: the thread leaves them to the search."""
        self._ahead: Iterator[str] = (each for each in ahead if each not in self._known and each not in self._asked)
        self._embedded: dict[str, None] = {}
        """The texts that the thread embeds now."""
        self._changed = Condition()
        self._wanted = False
        """Whether a text of those that were embedded last has been searched with."""
        self._newest: frozenset[str] = frozenset()
        self._ahead_now = FIRST
        self._thread: Thread | None = None
        self._is_closed = False

    def documents(self, texts: Sequence[str]) -> Any:
        return _remember(self._documents, texts, self._encoder.documents)

    def queries(self, texts: Sequence[str]) -> Any:
        with self._changed:
            if self._thread is None:
                self._thread = Thread(target=self._embed_ahead, name="foretool-replay-encoder", daemon=True)
                self._wanted = True
                self._thread.start()
                self._changed.wait_for(lambda: not self._wanted)
            if not self._newest.isdisjoint(texts):
                self._wanted = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._embedded.keys().isdisjoint(texts))
            self._asked.update(texts)
        return _remember(self._known, texts, self._encoder.queries)

    def close(self) -> None:
        """End the thread once it has embedded what it is at; the next search begins another one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._is_closed = None, False

    def take_new(self) -> dict[str, Any]:
        """Return the vectors of foreseen texts that were embedded here, each once; call it when closed."""
        found = {text: self._known[text] for text in self._new if text in self._known}
        self._new = {text: None for text in self._new if text not in found}
        return found

    def _embed_ahead(self) -> None:
        """Embed the next texts whenever one of those before them was searched with, until none is left."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._is_closed)
                if self._is_closed:
                    return
                self._embedded = dict.fromkeys(islice(self._ahead, self._ahead_now))
                self._ahead_now = min(2 * self._ahead_now, AHEAD)
                self._newest, self._wanted = frozenset(self._embedded), False
                self._changed.notify_all()
                if not self._embedded:
                    return
            with ThreadPoolExecutor(THREADS, "foretool-replay-encoder") as pool:
                parts = list(pool.map(self._embed, share_texts(list(self._embedded))))
            with self._changed:
                for found in parts:
                    self._known |= found
                self._embedded = {}
                self._changed.notify_all()

    def _embed(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the vectors of texts; none if the encoder fails."""
        found: dict[str, Any] = {}
        with suppress(Exception):  # the search that needs such a text meets the same error, and says so
            _remember(found, texts, self._encoder.queries)
        return found


def share_texts(texts: Sequence[str]) -> list[list[str]]:
    """Return texts as one part for each thread, of about as much work, with texts of like length side by side."""
    ordered = sorted(texts, key=len)
    parts: list[list[str]] = [[] for _ in range(THREADS)]
    for place, start in enumerate(range(0, len(ordered), TOGETHER)):
        parts[place % THREADS] += ordered[start : start + TOGETHER]
    return [part for part in parts if part]


def _remember(known: dict[str, Any], texts: Sequence[str], embed: Any) -> Any:
    import numpy as np

    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known.update(zip(new, embed(new), strict=True))
    return np.stack([known[text] for text in texts])


def _load(kept: VectorStore, key: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the vectors of those texts that the store has."""
    import numpy as np

    from foretool.retrieval.corpus import digest_query

    digests = {digest_query(text): text for text in texts}
    return {digests[each]: np.frombuffer(data, np.float32) for each, data in kept.load(key, digests).items()}


def _by_digest(vectors: Mapping[str, Any]) -> dict[bytes, bytes]:
    from foretool.retrieval.corpus import digest_query

    return {digest_query(text): row.tobytes() for text, row in vectors.items()}
