"""Records are frozen and comparable, and import nothing else of foretool."""

import subprocess
import sys

import pytest
from msgspec import Struct

from foretool.storage import records
from foretool.storage.records import Miss, SessionRecord

RECORDS = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_is_frozen(kind: type[Struct]) -> None:
    assert kind.__struct_config__.frozen


def test_records_import_nothing_else_of_foretool_and_nothing_heavy() -> None:
    code = "import sys, foretool.storage.records; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    ours = {name for name in found if name.startswith("foretool.")}
    assert ours == {"foretool.storage", "foretool.storage.records"}
    assert not {"sqlite3", "sqlite_utils", "pydantic", "numpy"} & set(found)


def test_fields_that_the_store_fills_have_defaults() -> None:
    session = SessionRecord("k", "cursor", "1.0", "legacy", "stdio", "default", 1.0)
    miss = Miss("k", 1.0, "a", "call", "budget", 3, 9, "", (), 0, 0, "", "called", 1, 10)
    assert (session.ended_at, miss.id, miss.call, miss.parts) == (None, 0, 0, {})
