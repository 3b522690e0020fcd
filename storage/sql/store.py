"""Every subject of the store, over one open database of any engine."""

from __future__ import annotations

from foretool.storage.records import Statistics
from foretool.storage.sql.approvals import Approvals
from foretool.storage.sql.artifacts import Artifacts
from foretool.storage.sql.audit import Audit
from foretool.storage.sql.browsing import Browsing, Exporting
from foretool.storage.sql.calls import Calls, Flows
from foretool.storage.sql.catalog import Catalog
from foretool.storage.sql.costs import CostSums
from foretool.storage.sql.database import Database
from foretool.storage.sql.discoveries import Discoveries, Tasks
from foretool.storage.sql.forgetting import Forgetting
from foretool.storage.sql.grants import Grants
from foretool.storage.sql.retention import Retention
from foretool.storage.sql.serving import Serving
from foretool.storage.sql.sessions import Clients, Sessions
from foretool.storage.sql.vectors import Vectors
from foretool.storage.sql.wordings import Wordings
from foretool.storage.stores import Store

_STATISTICS = """
    SELECT (SELECT count(*) FROM upstreams), (SELECT count(*) FROM tools), (SELECT count(*) FROM tool_versions),
        (SELECT count(*) FROM sessions), ?, ?, (
            SELECT coalesce((SELECT count FROM costs_marks WHERE name = 'calls'), 0) + count(*) FROM calls
            WHERE id > ? AND {}
        ), (SELECT count(*) FROM misses), (SELECT count(*) FROM clients)
"""


class SqlStore(Store):
    """A store in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path = database.path
        self.atomic = database.atomic
        self.snapshot = database.snapshot
        self.checkpoint = database.checkpoint
        self.close = database.close
        self.check = database.check
        self.hide = database.hide
        self.lead = database.lead
        self.reopen = database.reopen
        self.replicas = database.replicas
        self.approvals = Approvals(database)
        self.artifacts = Artifacts(database)
        self.audit = Audit(database)
        self.browsing = Browsing(database)
        self.calls = Calls(database)
        self.catalog = Catalog(database)
        self.clients = Clients(database)
        self.costs = CostSums(database)
        self.discoveries = Discoveries(database)
        self.exporting = Exporting(database)
        self.flows = Flows(database)
        self.forgetting = Forgetting(database)
        self.grants = Grants(database)
        self.retention = Retention(database)
        self.serving = Serving(database)
        self.sessions = Sessions(database)
        self.tasks = Tasks(database)
        self.vectors = Vectors(database)
        self.wordings = Wordings(database)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trouble(self) -> str:
        return self._database.trouble

    @property
    def notice(self) -> str:
        return self._database.notice

    @property
    def is_checkpoint_due(self) -> bool:
        return self._database.is_checkpoint_due

    def statistics(self) -> Statistics:
        database = self._database
        row = database.row("SELECT done FROM costs_marks WHERE name = 'calls'")
        done = row[0] if row else 0
        values = (database.count("exposures"), database.count("discoveries"), done)
        counts = database.rows(_STATISTICS.format(database.within("calls", done + 1)), values)[0]
        return Statistics(*(*counts, database.size()))
