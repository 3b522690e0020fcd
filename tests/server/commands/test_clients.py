"""`foretool status --clients`: the ledger and what `auto` makes of it."""

import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.group import run
from foretool.server.commands.status import describe_client
from foretool.storage.records import ClientRecord, Era, Policy


@pytest.mark.parametrize(
    ("client", "era", "announced", "relisted", "policy", "why"),
    [
        ("claude-code", "modern", 4, 4, "frozen", "its protocol forbids lists that grow on request (when told of"),
        ("cursor", "legacy", 0, 0, "frozen", "not measured yet; its next search will show"),
        ("claude-code", "legacy", 0, 0, "growing", "are known to list again"),
        ("claude-code", "legacy", 4, 1, "frozen", "lists again 25% of the time"),
        ("cursor", "legacy", 2, 0, "frozen", "does not list again"),
        ("cursor", "legacy", 4, 3, "growing", "lists again 75% of the time"),
    ],
)
def test_the_policy_of_auto_comes_with_its_reason(
    client: str, era: Era, announced: int, relisted: int, policy: Policy, why: str
) -> None:
    found = describe_client(ClientRecord(client, "1", era, announced, relisted, 20.0, 1.0))
    assert found["auto"] == policy and why in found["why"]


def test_every_client_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, policy="full")
    with fill(path) as store:
        store.clients.add_relist(ClientRecord("cursor", "1.2", "legacy", 2, 1, 35.0, 200.0))
    assert run(["status", "--clients", "--json", "--config", str(path)]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["client"], row["announced"], row["relisted"], row["relist_ms"]) == ("cursor", 2, 1, 35.0)
    assert run(["status", "--clients", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "cursor" in out and "growing" in out and 'The setting "policy" is full' in out


def test_before_the_first_client_it_says_how_to_register(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--clients", "--config", str(write_config(tmp_path))]) == 0
    assert "`foretool connect`" in capsys.readouterr().out
