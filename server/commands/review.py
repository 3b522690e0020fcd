"""`foretool review`: shows what servers have changed, and approves or blocks it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, refuse_together
from foretool.server.config.errors import guess
from foretool.server.config.loader import load
from foretool.server.ledger.diffs import diff_definitions
from foretool.server.ledger.review import (
    EFFECTS,
    NOUNS,
    Batch,
    DefinitionChange,
    add_launches,
    decide,
    diff_change,
    list_waiting,
    name_change,
    read_batch,
)
from foretool.server.system.processes import own_person
from foretool.server.trust.approvals import review_command
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Approval
from foretool.storage.store import Store

_MOST_LINES: Final = 60
"""Lines of one difference that are printed; `--json` has all of it."""


@click.command("review")
@click.argument("server", default="")
@click.argument("names", nargs=-1)
@click.option("--approve", is_flag=True, help="Serve what SERVER lists now.")
@click.option("--block", is_flag=True, help="Do not serve it, and do not ask about it again.")
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, server: str, names: tuple[str, ...], approve: bool, block: bool
) -> int:  # fmt: skip
    """Show what servers changed since approval; approve or block it.

    Without SERVER: what waits, by server. NAMES are tools or prompts of SERVER, or patterns of them; without NAMES a
    decision is about everything of SERVER that waits. Only what was shown is decided about: what has changed since you
    looked is shown first. A running foretool follows a decision within a second or two.

    \b
    foretool review
    foretool review weather
    foretool review weather --approve
    foretool review weather get_forecast "radar_*" --block
    """
    refuse_together(approve=approve, block=block)
    decision: Approval | None = "approved" if approve else "blocked" if block else None
    config = load(path)
    with open_existing_store(config.storage) as store:
        if not server:
            if decision:
                return complain("review: say of which server, for example: foretool review SERVER --approve")
            batches = [read_batch(config, store, each) for each in list_waiting(config, store)]
            return output.show({"servers": batches}, as_json, lambda _: _print_all(batches))
        if server not in config.servers and not store.approvals.undecided(server):
            return complain(f"review: {config.path} has no server {server!r}{guess(server, config.servers)}", WRONG)
        batch = read_batch(config, store, server)
        if decision:
            return _decide(store, batch, names, decision, as_json=as_json)
        store.approvals.note_shown(server, _hashes(batch.held))
        output.show(batch, as_json, _print_batch)
        if not as_json and batch.held and sys.stdin.isatty() and sys.stdout.isatty():
            return _ask(store, batch)
    return 0


def _hashes(changes: Iterable[DefinitionChange]) -> set[str]:
    return {change.hash for change in changes}


# Deciding


def _decide(store: Store, batch: Batch, names: Sequence[str], decision: Approval, *, as_json: bool) -> int:
    chosen = batch.held if not names else [each for each in batch.changes if _is_named(each, names)]
    if decision == "approved":
        chosen = add_launches(batch, chosen)
    unknown = [name for name in names if not any(_is_named(each, [name]) for each in batch.changes)]
    if unknown:
        meant = guess(unknown[0], [each.name for each in batch.changes])
        return complain(
            f"review: nothing of {unknown[0]!r} of server {batch.server!r} waits or was blocked{meant}", WRONG
        )
    shown = store.approvals.shown(batch.server)
    unseen = [each for each in chosen if shown is not None and each.hash not in shown and each.state == "held"]
    if unseen:
        store.approvals.note_shown(batch.server, {*(shown or ()), *_hashes(unseen)})
        for change in () if as_json else unseen:
            _print_change(change)
        what = f"{output.plural(len(unseen), 'change')} came after you looked"
        return complain(f"review: nothing was decided: {what}; look at it, then run the same command again", WRONG)
    return _apply(store, batch, chosen, decision, as_json=as_json)


def _apply(
    store: Store, batch: Batch, chosen: Sequence[DefinitionChange], decision: Approval, *, as_json: bool = False
) -> int:
    done, gone = decide(store, batch, chosen, decision, own_person())
    if as_json:
        output.emit({"server": batch.server, "decision": decision, "decided": done, "gone": sorted(gone)})
    elif not chosen:
        output.say(f"Nothing of server {batch.server} waits.")
    else:
        output.say(f"{batch.server}: {output.plural(len(done), 'change')} {decision}.", "green" if done else "")
    if gone:
        what = f"{output.plural(len(gone), 'change')} of {batch.server} changed meanwhile and stayed held"
        return complain(f"review: {what}; {review_command(batch.server)} shows it", WRONG)
    return 0


def _is_named(change: DefinitionChange, names: Sequence[str]) -> bool:
    return any(fnmatchcase(change.name or NOUNS[change.kind], name) for name in names)


def _ask(store: Store, batch: Batch) -> int:
    """Ask a person what to do with what was just shown."""
    choice = _choose("\nApprove all (a), block all (b), decide one by one (o), or leave it (l)?", "a", "b", "o", "l")
    if choice in ("a", "b"):
        return _apply(store, batch, batch.held, "approved" if choice == "a" else "blocked")
    status = 0
    for change in batch.held if choice == "o" else ():
        one = _choose(
            f"{output.printable_text(name_change(change))}: approve (a), block (b), or leave it (l)?", "a", "b", "l"
        )
        if one != "l":
            status |= _apply(store, batch, [change], "approved" if one == "a" else "blocked")
    return status


def _choose(question: str, *letters: str) -> str:
    choice: str = click.prompt(question, type=click.Choice(letters), default="l", show_choices=False)
    return choice


# Printing


def _print_all(batches: Sequence[Batch]) -> None:
    if not batches:
        output.say("Nothing waits: what your servers say is what was approved.")
        return
    rows = [
        (
            batch.server, batch.summary + _versions(batch),
            output.ago(min(each.since for each in batch.held)),
            sum(finding.severity != "low" for each in batch.held for finding in each.findings),
        )
        for batch in batches
    ]  # fmt: skip
    output.table(("server…", "waits…", "since", "findings#"), rows)
    output.say("`foretool review SERVER` shows the changes; until then what was approved is served.")


def _versions(batch: Batch) -> str:
    if not batch.version or batch.version == batch.approved_version:
        return ""
    return f"; version {batch.approved_version or '?'} -> {batch.version}"


def _print_batch(batch: Batch) -> None:
    output.say(f"{batch.server}: {batch.summary}{_versions(batch)}", "bold")
    if batch.held and batch.earlier_launch:
        output.say("Its command in your config has changed as well:")
        for line in diff_definitions(batch.earlier_launch.encode(), batch.launch.encode()):
            output.console().print(Text("  ").append_text(line))
    for change in batch.held:
        _print_change(change)
    blocked = [change for change in batch.changes if change.state == "blocked"]
    if blocked:
        output.say(f"\nblocked: {', '.join(change.name or NOUNS[change.kind] for change in blocked)}")
    if batch.held:
        output.say(f"\nTo decide: {review_command(batch.server)} --approve (or --block), or name single tools.")
    elif blocked:
        output.say(f"To serve one after all: {review_command(batch.server)} NAME --approve")


def _print_change(change: DefinitionChange) -> None:
    output.say(f"\n{name_change(change)} ({EFFECTS[change.effect]})", "bold")
    for finding in change.findings:
        output.say(f"  ! {finding.kind} ({finding.severity}) in {finding.where}: {finding.excerpt}", "yellow")
    lines = diff_change(change)
    for line in lines[:_MOST_LINES]:
        output.console().print(Text("  ").append_text(line))
    if len(lines) > _MOST_LINES:
        output.say(f"  ... {len(lines) - _MOST_LINES} more lines; --json shows all of it", "yellow")
