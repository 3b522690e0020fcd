"""`foretool clients`: the capabilities of each client, and the policy that `auto` chooses for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from foretool.server.clients.exposure import RELIST_SHARE, RELISTERS, choose_policy
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store
from foretool.storage.records import ClientRecord, Era, Policy


@dataclass(frozen=True, slots=True)
class Client:
    """One client name and version in one era."""

    client: str
    version: str
    era: Era
    announced: int
    """How many `list_changed` notifications it received."""
    relisted: int
    """How many of them it answered with `tools/list` in time."""
    relist_ms: float
    """Median delay; 0 if there is none."""
    last_seen: float
    auto: Policy
    """The policy that `auto` chooses for it."""
    why: str


@click.command("clients")
@config_option
@json_option
def command(path: Path | None, as_json: bool) -> int:
    """Show each client's capabilities and how foretool treats it.

    That is whether and how fast a client lists its tools again when told to, and which policy "auto" therefore chooses.
    """
    config = load(path)
    with open_existing_store(config.storage) as store:
        found = [describe_client(record) for record in store.clients.all()]
    if as_json:
        output.emit(found)
        return 0
    if not found:
        output.say("No client has connected yet. `foretool connect` shows how to register foretool with one.")
        return 0
    rows = [
        (
            each.client or "(unnamed)", each.version, each.era, each.announced, each.relisted,
            f"{each.relist_ms:.0f}" if each.relist_ms else "-", output.ago(each.last_seen), each.auto, each.why,
        )
        for each in found
    ]  # fmt: skip
    columns = ("client", "version", "era", "announced#", "re-listed#", "median ms#", "last seen", "auto", "because…")
    output.table(columns, rows)
    if config.settings.policy != "auto":
        output.say(f'The setting "policy" is {config.settings.policy}, so `auto` is not used.')
    return 0


def describe_client(record: ClientRecord) -> Client:
    return Client(
        client=record.client,
        version=record.version,
        era=record.era,
        announced=record.announced,
        relisted=record.relisted,
        relist_ms=record.relist_ms,
        last_seen=record.last_seen,
        auto=choose_policy("auto", record.era, record.client, record),
        why=_explain_policy(record),
    )


def _explain_policy(record: ClientRecord) -> str:
    if record.era == "modern":
        return "its protocol forbids lists that change because of a request"
    if record.announced:
        share = record.relisted / record.announced
        return f"it listed again after {share:.0%} of the announcements; `growing` needs {RELIST_SHARE:.0%}"
    if record.client.lower() in RELISTERS:
        return "not measured yet; clients of this name are known to list again"
    return "not measured yet; clients of this name are not known to list again"
