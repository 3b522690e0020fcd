"""`foretool audit`: who called what and who decided what."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, get_args

import click

from foretool.server.commands import output
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store
from foretool.storage.records import AuditAction, AuditEntry, AuditFilter

SHOWN: Final = 50


@click.command("audit")
@click.option("--since", type=read_duration, metavar="TIME", help="Only entries of the last 7d, 12h, 30min, ...")
@click.option("--until", type=read_duration, metavar="TIME", help="Only entries before the last 7d, 12h, 30min, ...")
@click.option("--who", default="", metavar="NAME", help="Only entries of this person or token: its name or principal.")
@click.option("--action", type=click.Choice(get_args(AuditAction)), help="Only entries of this kind.")
@click.option("--target", default="", metavar="NAME", help="Only entries about this tool or server.")
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="How many, the newest first.")
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, since: float | None, until: float | None, who: str, action: str | None,
    target: str, limit: int,
) -> int:  # fmt: skip
    """Show who called what and who decided what, as kept for good.

    Calls are kept while the setting "audit" is on; approvals, blocks, fixes of the page and what people connect
    always. Entries are only added: foretool never changes or deletes one, and the database refuses it. `foretool
    export audit` writes all of them.

    \b
    foretool audit --since 7d --who ann
    foretool audit --action decide
    """
    config = load(path)
    now = time.time()
    wanted = AuditFilter(
        since=now - since if since is not None else 0.0,
        until=now - until if until is not None else 1e12,
        principal=who,
        action=action or "",
        target=target,
    )
    with open_existing_store(config.storage) as store:
        found = store.audit.find(wanted, limit)
    is_empty = wanted == AuditFilter()
    return output.show(found, as_json, lambda entries: _print(entries, limit, config.settings.audit, is_empty))


def _print(entries: list[AuditEntry], limit: int, keeps_calls: bool, asked_for_all: bool) -> None:
    if entries:
        rows = [
            (
                output.when(each.at), f"{each.name or 'unknown'} ({each.principal or '-'})", each.action,
                each.target, each.outcome, each.detail or each.profile,
            )
            for each in entries
        ]  # fmt: skip
        output.table(("when", "who…", "action", "target…", "outcome", "what…"), rows)
        if len(entries) == limit:
            output.say(f"These are the newest {limit}; --limit shows more, `foretool export audit` all.")
    elif asked_for_all:
        output.say("Nothing is on record yet.")
    else:
        output.say("No entry fits.")
    if not keeps_calls:
        output.say('Calls are not kept: set "audit" to true in the block "foretool" of the config.')
