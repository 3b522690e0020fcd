"""The role of a proxy as docs/fleet.md grants it: it records, and cannot touch what the audit log has."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from postgres import SKIPPED, new_schema
from requirements import requirement
from stored_records import CALL, fill_store

from foretool.storage.engine import StorageError
from foretool.storage.opening import examine_store, open_store
from foretool.storage.places import ServerAddress
from foretool.storage.records import AuditEntry, AuditFilter

FLEET = Path(__file__).parents[3] / "docs" / "fleet.md"
ENTRY = AuditEntry(1.0, "oauth:1", "ann", "c", "", "call", "t", "ok")


def make_proxy_role(address: str) -> str:
    """Let a role of its own run the proxies, as the page says; return its address."""
    psycopg = pytest.importorskip("psycopg")
    schema = re.search(r"search_path=(\w+)", unquote(address))
    written = re.search(r"```sql\n(GRANT.+?)```", FLEET.read_text("utf-8"), re.DOTALL)
    assert schema is not None and written is not None
    role = f"app_{secrets.token_hex(4)}"
    with psycopg.connect(address, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role}")
        for line in written[1].split(";"):
            if line.strip():
                owner.execute(
                    line.replace("foretool_app", role)
                    .replace("SCHEMA foretool", f"SCHEMA {schema[1]}")
                    .replace("foretool.", f"{schema[1]}.")
                )
    options = parse_qs(urlsplit(address).query)["options"][0]
    proxy = address.replace(quote(options), quote(f"{options} -c role={role}"))
    assert proxy != address
    return proxy


@requirement("trust:audit")
def test_the_grants_of_the_page_let_a_proxy_add_entries_and_nothing_else() -> None:
    pytest.importorskip("psycopg")
    address = new_schema()
    if address is None:
        pytest.skip(SKIPPED)
    with open_store(address) as owners:
        owners.audit.add([ENTRY])
        proxy = make_proxy_role(address)
        assert examine_store(ServerAddress(proxy, Path("/nowhere")), 5.0).problems == ()
        with open_store(proxy) as store:
            fill_store(store)
            with store.atomic():
                store.calls.record([CALL])
                store.audit.add([ENTRY])
            store.retention.prune(1e12)
            assert len(store.audit.find(AuditFilter())) == 2
            database = store._database  # type: ignore[attr-defined]
            for statement in (
                "UPDATE audit SET name = 'eve'",
                "DELETE FROM audit",
                "TRUNCATE audit",
                "ALTER TABLE audit DISABLE TRIGGER ALL",
                "DROP TABLE audit",
                "DROP FUNCTION audit_only_grows() CASCADE",
            ):
                with pytest.raises(StorageError, match=r"permission denied|must be owner"):
                    database.run(statement)
        for statement in ("UPDATE audit SET name = 'eve'", "DELETE FROM audit", "TRUNCATE audit"):
            with pytest.raises(StorageError, match="the audit log only grows"):
                owners._database.run(statement)  # type: ignore[attr-defined]
