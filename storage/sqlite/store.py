"""`SqliteStore`: every subject of the store, over one open SQLite file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from foretool.storage.sqlite.artifacts import Artifacts
from foretool.storage.sqlite.calls import Calls
from foretool.storage.sqlite.catalog import Catalog
from foretool.storage.sqlite.database import Database
from foretool.storage.sqlite.discoveries import Discoveries, Tasks
from foretool.storage.sqlite.flows import Flows
from foretool.storage.sqlite.serving import Serving
from foretool.storage.sqlite.sessions import Clients, Sessions
from foretool.storage.sqlite.vectors import Vectors

if TYPE_CHECKING:
    from foretool.storage.records import Statistics


class SqliteStore(AbstractContextManager["SqliteStore"]):
    """Implements `Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path = database.path
        self.atomic = database.atomic
        self.checkpoint = database.checkpoint
        self.close = database.close
        self.artifacts = Artifacts(database)
        self.calls = Calls(database)
        self.catalog = Catalog(database)
        self.clients = Clients(database)
        self.discoveries = Discoveries(database)
        self.flows = Flows(database)
        self.serving = Serving(database)
        self.sessions = Sessions(database)
        self.tasks = Tasks(database)
        self.vectors = Vectors(database)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_checkpoint_due(self) -> bool:
        return self._database.is_checkpoint_due

    def statistics(self) -> Statistics:
        from foretool.storage.sqlite.upkeep import count_rows

        return count_rows(self._database)

    def prune_log(self, before: float) -> int:
        from foretool.storage.sqlite.upkeep import prune_log

        return prune_log(self._database, before)
