"""The library over upstreams in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import FakeApp, FakeUpstream, config_of, text, tool

from foretool import Foretool
from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.storage.store import Store


def mail() -> FakeUpstream:
    tools = [tool("send.now", "Sends a letter to somebody", {"to": {"type": "string"}}), tool("read", "Reads a letter")]
    return FakeUpstream("mail", tools, results={"send.now": text("sent", structuredContent={"id": 7})})


class Faked(Foretool):
    """The library over upstreams in memory."""

    def __init__(self, folder: Path, *upstreams: FakeUpstream, **settings: Any) -> None:
        self._fakes = {upstream.name: upstream for upstream in upstreams}
        self.storage = folder / "store.sqlite3"
        super().__init__(config_of(*upstreams, storage=str(self.storage), **settings))

    def _make(self, config: Config, store: Store) -> App:
        app = FakeApp.__new__(FakeApp)
        app.fakes = self._fakes
        FakeApp.__init__(app, config, store)
        return app
