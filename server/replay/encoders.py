"""The encoders of a replay: opened once for all configs that choose the same ones; each text is embedded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretool.server.app import App
from foretool.server.catalog import embedding
from foretool.server.config.settings import Settings
from foretool.storage.stores import Store

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder, Weights


class OpenedEncoders:
    """Opens encoders for the settings that choose them, and installs them into the search of an application."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, ...], tuple[tuple[Weights, ...], list[_Remembering]]] = {}

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

    def _open(self, settings: Settings, kept: Store) -> tuple[tuple[Weights, ...], list[_Remembering]]:
        key = tuple(str(getattr(settings, name)) for name in embedding.CHOICE)
        if key not in self._opened:
            from foretool.server.catalog.encoders import open_encoder

            weights = embedding.find_weights(settings)
            folder = embedding.find_cache_folder(kept)
            encoders = [_Remembering(open_encoder(each, folder, key=settings.encoder_key)) for each in weights]
            self._opened[key] = (weights, encoders)
        return self._opened[key]


class _Remembering:
    """An encoder that embeds each text once: two configs read the same tasks."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.name = encoder, encoder.name
        self._known: dict[str, Any] = {}
        self._documents: dict[str, Any] = {}

    def documents(self, texts: Sequence[str]) -> Any:
        """Embed texts that are searched. Raises `EncoderError`."""
        return _remember(self._documents, texts, self._encoder.documents)

    def queries(self, texts: Sequence[str]) -> Any:
        """Embed texts to search with. Raises `EncoderError`."""
        return _remember(self._known, texts, self._encoder.queries)


def _remember(known: dict[str, Any], texts: Sequence[str], embed: Any) -> Any:
    import numpy as np

    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known.update(zip(new, embed(new), strict=True))
    return np.stack([known[text] for text in texts])
