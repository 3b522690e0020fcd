"""`foretool clients`: the capabilities of each client, and the policy that `auto` chooses for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from foretool.server.clients.exposure import RELIST_SHARE, RELISTERS, choose_policy
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.config.settings import PolicyChoice
from foretool.storage.opening import open_existing_store
from foretool.storage.records import ClientRecord


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
    return output.show(found, as_json, lambda clients: _print(clients, config.settings.policy))


def describe_client(record: ClientRecord) -> dict[str, Any]:
    """Return the record, with the policy that `auto` chooses and why."""
    policy = choose_policy("auto", record.era, record.client, record)
    return {**asdict(record), "auto": policy, "why": explain_policy(record)}


def _print(clients: list[dict[str, Any]], policy: PolicyChoice) -> None:
    if not clients:
        output.say("No client has connected yet. `foretool connect` shows how to register foretool with one.")
        return
    rows = [
        (
            each["client"] or "(unnamed)", each["version"], each["era"], each["announced"], each["relisted"],
            f"{each['relist_ms']:.0f}" if each["relist_ms"] else "-", output.ago(each["last_seen"]), each["auto"],
            each["why"],
        )
        for each in clients
    ]  # fmt: skip
    columns = ("client", "version", "era", "announced#", "re-listed#", "median ms#", "last seen", "auto", "because…")
    output.table(columns, rows)
    if policy != "auto":
        output.say(f'The setting "policy" is {policy}, so `auto` is not used.')


def explain_policy(record: ClientRecord) -> str:
    if record.era == "modern":
        return "its protocol forbids lists that change because of a request"
    if record.announced:
        share = record.relisted / record.announced
        return f"it listed again after {share:.0%} of the announcements; `growing` needs {RELIST_SHARE:.0%}"
    if record.client.lower() in RELISTERS:
        return "not measured yet; clients of this name are known to list again"
    return "not measured yet; clients of this name are not known to list again"
