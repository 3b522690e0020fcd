"""The encoders of a replay: opened once for all configs that choose the same ones; each text is embedded once.

A replay knows beforehand what its tasks searched with. So a thread embeds those texts ahead of the player, many at a
time, which takes half the processor time of one after the other and leaves the second core something to do. Each text
gets the same vector, to the last bit, as a proxy's search of this text alone (`tests/retrieval/encoders/test_onnx.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

from foretool.server.app import App
from foretool.server.catalog import embedding
from foretool.server.config.settings import Settings
from foretool.storage.stores import Store

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder, Weights


AHEAD: Final = 128
"""How many texts are embedded at once; texts of like length share a batch, and there are enough of them among so
many. A player that searches no more, since its list has every tool, has so many embedded in vain."""


class OpenedEncoders:
    """Opens encoders for the settings that choose them, and installs them into the search of an application."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """`texts`: what will be searched with, about in this order."""
        self._texts = texts
        self._opened: dict[tuple[str, ...], tuple[tuple[Weights, ...], list[Remembering]]] = {}

    def close(self) -> None:
        """Stop to embed ahead."""
        for _, encoders in self._opened.values():
            for each in encoders:
                each.close()

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
            from foretool.server.catalog.encoders import open_encoder

            weights = embedding.find_weights(settings)
            folder = embedding.find_cache_folder(kept)
            # Somebody else's model may give a text another vector among other texts.
            encoders = [
                Remembering(open_encoder(each, folder, key=settings.encoder_key), () if each.is_slow else self._texts)
                for each in weights
            ]
            self._opened[key] = (weights, encoders)
        return self._opened[key]


class Remembering:
    """An encoder that embeds each text once, since two configs read the same tasks; the texts of `ahead` in a thread,
    as soon as the ones before them are wanted."""

    def __init__(self, encoder: Encoder, ahead: Iterable[str] = ()) -> None:
        self._encoder, self.name = encoder, encoder.name
        self._known: dict[str, Any] = {}
        self._documents: dict[str, Any] = {}
        self._ahead: Iterator[str] = (each for each in dict.fromkeys(ahead) if each not in self._known)
        self._embedded: dict[str, None] = {}
        """The texts that the thread embeds now."""
        self._changed = Condition()
        self._wanted = False
        """Whether a text of those that were embedded last has been searched with."""
        self._newest: frozenset[str] = frozenset()
        self._thread: Thread | None = None
        self._is_closed = False

    def documents(self, texts: Sequence[str]) -> Any:
        """Embed texts that are searched. Raises `EncoderError`."""
        return _remember(self._documents, texts, self._encoder.documents)

    def queries(self, texts: Sequence[str]) -> Any:
        """Embed texts to search with. Raises `EncoderError`."""
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
        return _remember(self._known, texts, self._encoder.queries)

    def close(self) -> None:
        """End the thread once it has embedded what it is at; the next search begins another one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._is_closed = None, False

    def _embed_ahead(self) -> None:
        """Embed the next texts whenever one of those before them was searched with, until none is left."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._is_closed)
                if self._is_closed:
                    return
                self._embedded = dict.fromkeys(islice(self._ahead, AHEAD))
                self._newest, self._wanted = frozenset(self._embedded), False
                self._changed.notify_all()
                if not self._embedded:
                    return
            found: dict[str, Any] = {}
            try:
                _remember(found, list(self._embedded), self._encoder.queries)
            except Exception:  # noqa: BLE001  # the search that needs such a text meets the same error, and says so
                found = {}
            with self._changed:
                self._known |= found
                self._embedded = {}
                self._changed.notify_all()


def _remember(known: dict[str, Any], texts: Sequence[str], embed: Any) -> Any:
    import numpy as np

    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known.update(zip(new, embed(new), strict=True))
    return np.stack([known[text] for text in texts])
