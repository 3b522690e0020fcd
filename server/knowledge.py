"""What the proxy knows: what it has recorded, the catalog of tools, and what ranks them. Makes these parts, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from foretool.server import housekeeping
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.embedding import Embedder
from foretool.server.catalog.models import ModelLoader
from foretool.server.catalog.names import NameKeeper
from foretool.server.catalog.search import Search
from foretool.server.catalog.token_counter import TokenCounter
from foretool.server.config.loader import LiveConfig
from foretool.server.discovery.query_vectors import QueryVectors
from foretool.server.housekeeping import Retention
from foretool.server.learning_schedule import Schedule
from foretool.server.recording.calibration import Recalibrator
from foretool.server.recording.costs import CostKeeper
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.guard import Job
from foretool.server.transports.tasks import TICK_S
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.storage.places import made_folder
from foretool.storage.store import Store


class Knowledge:
    """The records, the catalog, and what ranks it."""

    def __init__(
        self, live: LiveConfig, store: Store, clock: Callable[[], float], recorder: Recorder,
        on_models: Callable[[], None], find_instructions: Callable[[], Any],
    ) -> None:  # fmt: skip
        """`clock`: seconds since 1970. `on_models` is told that other models serve. `find_instructions` returns the
        instruction corpus once there is one, whose texts are counted too."""
        config = live.now
        self.recorder = recorder
        self.flows = FlowWatch(live)
        self.names = NameKeeper(store.catalog)
        self.gatekeeper = Gatekeeper(lambda: store.approvals, live, lambda: asyncio.get_running_loop().time())
        self.catalog = Catalog(
            list(config.servers.values()), self.names.load(), self.names.keep, config.prefixes, config.broken
        )
        self.search = Search(self.catalog, recorder.usage_of, clock, config.settings)
        self.embedding = Embedder(config.settings, self.catalog, store, self.search)
        self.query_vectors = QueryVectors(store, self.search, self.embedding, clock)
        self.models = ModelLoader(self.search, store, on_models)
        self.recalibrator = Recalibrator(store)
        self.schedule = Schedule(store, config.path)
        self.retention = Retention(store, live, lambda: self.search.update_corpus().digests)
        self.costs = CostKeeper(store)
        self.tokens = TokenCounter(self.catalog, store.catalog, find_instructions, made_folder(store.path))
        self._live = live
        self._store = store

    def jobs(self) -> tuple[Job, ...]:
        """Return what is to be done about once a second, except for `models`, which need to know of the lists."""
        return (
            Job("records of killed proxies", self.recorder.take_over),
            Job("names", self.names.save),
            Job("index", lambda: self.search.index(TICK_S), self.search),
            Job("embedding", self._embed, self.embedding),
            Job("data flow", lambda: housekeeping.save_flows(self.flows, self.recorder)),
            Job("confidence", self._recalibrate, self.recalibrator),
            Job("learning", lambda: self.schedule.tick(self._live.settings.learn_s), self.schedule),
            Job("retention", self.retention.tick, self.retention),
            Job("costs", self.costs.tick, self.costs),
            Job("usage", self._store.calls.fold_some),
            Job("searched words", self.query_vectors.tick),
        )

    async def stop(self) -> None:
        """End what works in the background."""
        for part in (self.search, self.embedding, self.schedule, self.models, self.retention, self.costs):
            await part.stop()

    def _embed(self) -> None:
        if self.search.is_complete:
            self.embedding.tick()

    def _recalibrate(self) -> None:
        self.recalibrator.tick()
        self.search.install_calibration(self.recalibrator.calibration.map)
