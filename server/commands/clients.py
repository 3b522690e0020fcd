"""`foretool clients`: what was measured of each client, and the policy that `auto` picks from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from foretool.server.clients.exposure import RELIST_SHARE, RELISTERS, choose_policy
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import ClientRecord, Era, Policy


@dataclass(frozen=True, slots=True)
class Known:
    """One client name and version in one era."""

    client: str
    version: str
    era: Era
    announced: int
    """`list_changed` notifications sent to it."""
    relisted: int
    """How many of them it answered with `tools/list` in time."""
    relist_ms: float
    """Median delay; 0 if there is none."""
    last_seen: float
    auto: Policy
    """What the policy `auto` picks for it now."""
    why: str


@click.command("clients")
@config_option
@json_option
def command(path: Path | None, as_json: bool) -> int:
    """Show what was measured of each client.

    Whether it lists its tools again when told to, how fast, and the policy that "auto" therefore picks.
    """
    config = load(path)
    found: list[Known] = []
    if config.storage.exists():
        with open_store(config.storage) as store:
            found = [known(record) for record in store.clients.all()]
    if as_json:
        output.emit(found)
        return 0
    if not found:
        output.say("No client has connected yet. `foretool connect` prints the lines that register foretool with one.")
        return 0
    rows = [
        (
            each.client or "(unnamed)", each.version, each.era, each.announced, each.relisted,
            f"{each.relist_ms:.0f}" if each.relist_ms else "-", output.ago(each.last_seen), each.auto, each.why,
        )
        for each in found
    ]  # fmt: skip
    columns = ("client", "version", "era", "announced#", "re-listed#", "median ms#", "last seen", "auto", "because…")
    output.table("", columns, rows)
    if config.settings.policy != "auto":
        output.say(f'The setting "policy" is {config.settings.policy}, so `auto` decides nothing.')
    return 0


def known(record: ClientRecord) -> Known:
    return Known(
        client=record.client,
        version=record.version,
        era=record.era,
        announced=record.announced,
        relisted=record.relisted,
        relist_ms=record.relist_ms,
        last_seen=record.last_seen,
        auto=choose_policy("auto", record.era, record.client, record),
        why=_why(record),
    )


def _why(record: ClientRecord) -> str:
    if record.era == "modern":
        return "its protocol forbids lists that requests change"
    if record.announced:
        share = record.relisted / record.announced
        return f"it listed again after {share:.0%} of the announcements; {RELIST_SHARE:.0%} are needed to grow its list"
    if record.client.lower() in RELISTERS:
        return "not measured yet; clients of this name are known to list again"
    return "not measured yet; clients of this name are not known to list again"
