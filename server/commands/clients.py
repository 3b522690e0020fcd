"""`foretool clients`: the capabilities of each client, and the policy that `auto` chooses for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.config.settings import PolicyChoice
from foretool.server.lists.policy import choose_policy, explain_policy
from foretool.storage.opening import open_existing_store
from foretool.storage.records import ClientRecord


@click.command("clients")
@config_option
@json_option
def command(path: Path | None, as_json: bool) -> int:
    """Show each client's capabilities and how foretool treats it.

    That is whether and how fast a client lists its tools again when told that they changed, and which policy "auto"
    therefore chooses. A client that foretool does not know is tried once, with its first search.
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
            f"{each['client'] or '(unnamed)'} {each['version']}".rstrip(), each["era"], each["announced"],
            each["relisted"], f"{each['relist_ms']:.0f}" if each["relist_ms"] else "-", each["auto"], each["why"],
        )
        for each in clients
    ]  # fmt: skip
    output.table(("client…", "era", "told#", "listed#", "ms#", "auto", "because…"), rows)
    output.say("told: how often it was told that its list has changed. listed: how often it then listed within 2 s.")
    if policy != "auto":
        output.say(f'The setting "policy" is {policy}, so `auto` is not used.')
