"""Reads which texts of a server wait for the user's decision, and carries the decision out.

`foretool review` and the page both show and decide with these functions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from rich.text import Text

from foretool.server.catalog.known_lists import find_known
from foretool.server.config.loader import Config
from foretool.server.config.servers import program_of
from foretool.server.ledger.diffs import diff_definitions, diff_texts
from foretool.server.local.opening import forget_answers
from foretool.server.protocol import jsonrpc
from foretool.server.trust.approvals import count_held
from foretool.server.trust.findings import TextFinding, find_in_text, find_suspicious
from foretool.server.trust.lookalikes import Names
from foretool.storage.records import Approval, AuditEntry, Definition, DefinitionKind, Effect, Person
from foretool.storage.store import Store

NOUNS: Final[dict[DefinitionKind, str]] = {
    "tool": "tool", "prompt": "prompt", "prompt_text": "text of prompt", "resource": "words of resource",
    "template": "resource template", "skill": "skill", "instructions": "instructions", "launch": "command",
}  # fmt: skip
EFFECTS: Final[dict[Effect, str]] = {
    "new": "new; not served",
    "kept": "changed; the approved text is served",
    "withheld": "changed so that its approved version no longer works; refused",
}


class DefinitionChange(Struct, frozen=True):
    """One definition that waits for a decision, or was blocked."""

    kind: DefinitionKind
    name: str
    state: Approval
    effect: Effect
    hash: str
    since: float
    approved: str | None
    """The approved version, None if there is none."""
    listed: str
    findings: tuple[TextFinding, ...]


class Batch(Struct, frozen=True):
    """All changes of one server that wait for a decision or were blocked."""

    server: str
    summary: str
    approved_version: str
    version: str
    launch: str
    earlier_launch: str
    """How the server was reached before its command was changed; "" if it was not."""
    changes: tuple[DefinitionChange, ...]

    @property
    def held(self) -> tuple[DefinitionChange, ...]:
        return tuple(each for each in self.changes if each.state == "held")


def read_batch(config: Config, store: Store, server: str) -> Batch:
    """Return what waits for a decision about a server, and what was blocked."""
    undecided = store.approvals.undecided(server)
    held = [each for each in undecided if each.state == "held"]
    names = _known_names(config, store)
    launches = store.approvals.approved(server, "launch")
    changes = [_read_change(store, each, names) for each in undecided]
    return Batch(
        server=server,
        summary=count_held(held) if held else "nothing waits",
        approved_version=launches[0].version if launches else "",
        version=next((each.version for each in held), ""),
        launch=launches[0].value.decode() if launches else "",
        earlier_launch=launches[1].value.decode() if len(launches) > 1 else "",
        changes=tuple(
            sorted(changes, key=lambda each: (list(NOUNS).index(each.kind), each.effect == "new", each.name))
        ),
    )


def _read_change(store: Store, held: Definition, names: Names) -> DefinitionChange:
    approved = store.approvals.approved(held.server, held.kind, held.name)
    text = held.value.decode(errors="replace")
    if held.kind == "tool":
        findings = find_suspicious(held.value, held.server, names)
    else:
        findings = find_in_text(text, held.server, names, NOUNS[held.kind]) if held.kind != "launch" else ()
    before = approved[0].value.decode(errors="replace") if approved else None
    return DefinitionChange(
        held.kind, held.name, held.state, held.effect, held.hash, held.seen_at, before, text, findings
    )


def _known_names(config: Config, store: Store) -> Names:
    known = store.catalog.load(list(find_known(store, config.servers.values()).items()))
    described = (
        (tool.upstream, tool.name, jsonrpc.member(jsonrpc.Raw(tool.definition), "description") or "")
        for _, tools in known
        for tool in tools
    )
    return Names(described, {server.name: program_of(server) for server in config.servers.values()})


def list_waiting(config: Config, store: Store) -> list[str]:
    """Return the servers of which something waits, those of the config first."""
    found = {each.server for each in store.approvals.undecided() if each.state == "held"}
    return [*(name for name in config.servers if name in found), *sorted(found - config.servers.keys())]


def add_launches(batch: Batch, chosen: Iterable[DefinitionChange]) -> list[DefinitionChange]:
    """Return the chosen changes and the changed command of the server, each once: whoever approves a tool lets the
    server run that has it."""
    launches = (each for each in batch.held if each.kind == "launch")
    return list({each.hash: each for each in (*chosen, *launches)}.values())


def decide(
    store: Store, batch: Batch, chosen: Sequence[DefinitionChange], decision: Approval, by: Person
) -> tuple[list[DefinitionChange], set[str]]:
    """Approve or block exactly these changes, and keep who did it. Returns those that were decided, and the hashes of
    those that have changed meanwhile and stayed held."""
    wanted = [Definition(batch.server, each.kind, each.name, each.hash, b"") for each in chosen]
    with store.atomic():
        gone = {each.hash for each in store.approvals.decide(wanted, decision)} if wanted else set()
        done = [each for each in chosen if each.hash not in gone]
        store.audit.add([_entry(batch.server, each, decision, by) for each in done])
    forget_answers()
    return done, gone


def _entry(server: str, change: DefinitionChange, decision: Approval, by: Person) -> AuditEntry:
    what = f"{name_change(change)} {change.hash[:12]}"
    return AuditEntry(time.time(), by.principal, by.name, "", "", "decide", server, decision, what)


def choose_changes(batch: Batch, hashes: Collection[str]) -> list[DefinitionChange]:
    """Return the changes of these hashes that still wait or were blocked."""
    return [each for each in batch.changes if each.hash in hashes]


def name_change(change: DefinitionChange) -> str:
    """Return what a change is of, such as "tool add"."""
    return f"{NOUNS[change.kind]} {change.name}".strip()


def diff_change(change: DefinitionChange) -> list[Text]:
    """Return the lines in which the listed text differs from the approved one; all of it if none was approved."""
    if change.kind in ("instructions", "prompt_text"):
        return diff_texts(change.approved or "", change.listed)
    return diff_definitions(None if change.approved is None else change.approved.encode(), change.listed.encode())
