"""Prepares the search by meaning once tools were listed: for `init`, `doctor` and `add`, which have a progress bar.

A proxy does the same in the background, so whatever goes wrong here is tried again there.
"""

from __future__ import annotations

import asyncio

from foretool.server.app import App
from foretool.server.catalog import models
from foretool.server.catalog.embedding import OnEmbedded
from foretool.server.config.loader import Config
from foretool.storage.opening import open_store
from foretool.storage.stores import StorageError


def prepare_meaning(config: Config, on_embedded: OnEmbedded) -> str:
    """Embed the tools that the store knows and has no vector of. Returns what went wrong, in words; "" for nothing."""
    try:
        with open_store(config.storage) as store:
            app = App(config, store)
            models.install_wordings(app.search, store)
            asyncio.run(app.known.embedding.embed_all(on_embedded))
            return app.known.embedding.problem
    except StorageError as error:
        return str(error)
