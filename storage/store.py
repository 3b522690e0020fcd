"""What is remembered: every subject of the store, over one open database; `opening.open_store` opens one.

There is one class for each subject, whichever engine is below: engines differ in `sql.database.Database`. Reading one
record gives None if the store does not have it, and adding one gives its id. Lists have the newest record first unless
the method says otherwise; a negative limit means no limit. Every method may raise `engine.StorageError`.

    with open_store(path) as store:
        store.calls.record([call])
        latest = store.calls.recent(10)
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from foretool.storage.records import SHELL_CLIENT, Statistics
from foretool.storage.sql.approvals import ApprovalStore
from foretool.storage.sql.artifacts import ArtifactStore, VectorStore, WordingStore
from foretool.storage.sql.browsing import BrowseStore, ExportStore
from foretool.storage.sql.calls import CallStore, FlowStore, KeptCallStore
from foretool.storage.sql.catalog import CatalogStore
from foretool.storage.sql.costs import CostStore
from foretool.storage.sql.database import Database
from foretool.storage.sql.discoveries import DiscoveryStore, TaskStore
from foretool.storage.sql.forgetting import ForgetStore
from foretool.storage.sql.people import AuditStore, GrantStore
from foretool.storage.sql.retention import RetentionStore
from foretool.storage.sql.sessions import ClientLedger, ServingStore, SessionStore

_STATISTICS = """
    SELECT (SELECT count(DISTINCT name) FROM upstreams), (
            SELECT count(*) FROM (
                SELECT DISTINCT upstreams.name AS upstream, tools.name FROM tools
                JOIN upstreams ON upstreams.id = tools.upstream
            ) AS known
        ), (SELECT count(*) FROM tool_versions),
        (SELECT count(*) FROM sessions), (SELECT count(*) FROM exposures), (SELECT count(*) FROM discoveries), (
            SELECT coalesce((SELECT count FROM costs_marks WHERE name = 'calls'), 0) + count(*) FROM calls
            WHERE id > ?
        ), (SELECT count(*) FROM misses),
        (SELECT count(DISTINCT client) FROM clients WHERE client != ?)
"""


class Store(AbstractContextManager["Store"]):
    """One open store, which closes at the end of its `with` block.

    One thread uses it, except for `checkpoint`; other processes open their own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path = database.path
        """Where the store is; `places.local_file` says beside what other files stand that belong to it. ":memory:" for
        one in memory."""
        self.replicas = database.replicas
        """What replicas share; None where one machine alone can have the store."""
        self.atomic = database.atomic
        """Write everything inside the block, or nothing; blocks nest, are short, and never await."""
        self.snapshot = database.snapshot
        """Read one state of the store inside the block, whatever other processes write meanwhile."""
        self.checkpoint = database.checkpoint
        """Do the upkeep that would slow down later writes, from any thread; return the pages it could not move."""
        self.close = database.close
        self.check = database.check
        """Notice cheaply that the file was removed, replaced, or changed by a newer foretool."""
        self.reopen = database.reopen
        """Try to use the file again, from any thread; return whether it can be used."""
        self.hide = database.hide
        """Keep the secrets that this returns out of everything that is written from now on; see `redaction`."""
        self.lead = database.lead
        """Return the lead for a kind of work, by its name, which nobody has taken yet."""
        self.approvals = ApprovalStore(database)
        self.artifacts = ArtifactStore(database)
        self.audit = AuditStore(database)
        self.browsing = BrowseStore(database)
        self.calls = CallStore(database)
        self.catalog = CatalogStore(database)
        self.clients = ClientLedger(database)
        self.costs = CostStore(database)
        self.discoveries = DiscoveryStore(database)
        self.exporting = ExportStore(database)
        self.flows = FlowStore(database)
        self.forgetting = ForgetStore(database)
        self.grants = GrantStore(database)
        self.kept_calls = KeptCallStore(database)
        self.retention = RetentionStore(database)
        self.serving = ServingStore(database)
        self.sessions = SessionStore(database)
        self.tasks = TaskStore(database)
        self.vectors = VectorStore(database)
        self.wordings = WordingStore(database)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trouble(self) -> str:
        """Why the file cannot be used now, or ""; every method then raises a temporary `StorageError`.

        Only a store that was opened for serving gets into trouble; any other one raises what it finds.
        """
        return self._database.trouble

    @property
    def notice(self) -> str:
        """What a user should do about a store that works but should not stay as it is; "" for nothing."""
        return self._database.notice

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough was written for a `checkpoint` to be worth a thread."""
        return self._database.is_checkpoint_due

    def statistics(self) -> Statistics:
        database = self._database
        row = database.row("SELECT done FROM costs_marks WHERE name = 'calls'")
        counts = database.rows(_STATISTICS, (row[0] if row else 0, SHELL_CLIENT))[0]
        return Statistics(*(*counts, database.size()))
