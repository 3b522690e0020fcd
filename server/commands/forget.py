"""`foretool forget`: deletes records from the store, and from the log of a storage file, for good."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from foretool.server import packs
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.server.system import interrupts
from foretool.server.system.processes import own_person
from foretool.server.upstreams.memory import find_running
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store, store_exists
from foretool.storage.places import ServerAddress, StorePlace
from foretool.storage.records import AuditEntry, AuditFilter, Forgotten, SealedGrant, Selection
from foretool.storage.store import Store

_BUSY_MS: Final = 5000
_SHOWN: Final = 1000
"""Entries of the audit log that are counted at most."""
_KEPT_BY_SERVER: Final = "its write-ahead log, replicas and backups keep what was deleted for as long as they are kept"
_STILL_IN_USE: Final = "others use the tables, so traces stay in them; run `foretool forget --compact` later"
_PRINCIPALS: Final = ("oauth:", "bearer:", "user:")
_NOUNS: Final = {
    "calls": "calls", "misses": "misses", "misses_of_others": "misses of other tools, after calls of these",
    "discoveries": "searches for tools", "exposures": "lists of clients",
    "prompts": "prompts", "steps": "steps of agents", "sessions": "sessions", "clients": "clients",
    "flows": "values that flowed between tools", "demonstrations": "imported demonstrations",
    "working_sets": "lists kept for clients", "upstream_states": "states of servers",
    "failures": "failures of servers", "kept_calls": "long calls and their results", "usage": "tools' numbers of calls",
    "vectors": "vectors of texts", "artifacts": "learned models and reports of learning",
    "tools": "tools", "upstreams": "servers",
    "tool_versions": "definitions of tools", "grants": "grants of people", "consents": "consents under way",
    "wordings": "wordings of tools", "session_people": "names of people at sessions",
}  # fmt: skip


_OF_TOOLS: Final = {
    "discoveries": "searches that showed these tools", "exposures": "lists of clients with these tools",
    "steps": "steps of agents with these tools", "working_sets": "lists kept for clients with these tools",
    "demonstrations": "imported demonstrations with these tools",
}  # fmt: skip
"""What else is forgotten where a server or a tool is given."""


class Outcome(Struct, frozen=True):
    """What was forgotten, or would be."""

    counts: dict[str, int]
    """Records by kind."""
    is_done: bool
    remains: tuple[str, ...]
    """What is not forgotten yet, or stays, and until when."""


@click.command("forget")
@config_option
@click.option("--before", metavar="TIME", help="Only what is older than 30d, 12h, ..., or a date such as 2026-01-31.")
@click.option("--since", metavar="TIME", help="Only the last 2h, 30min, ..., or from a date on.")
@click.option("--server", default="", metavar="NAME", help="Only what concerns this server's tools.")
@click.option("--session", default="", metavar="KEY", help="Only this session; the first characters suffice.")
@click.option(
    "--person",
    default="",
    metavar="WHO",
    help="Only what this person did: their `sub`, or the principal in the audit log.",
)
@click.option("--tool", default="", metavar="TOOL", help="Only what concerns this tool.")
@click.option("--text", "texts", multiple=True, metavar="WORDS", help="Only texts with these words; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="All records, all models and all that is known of servers.")
@click.option("--compact", is_flag=True, help="Delete nothing; remove the traces of what was deleted before.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    path: Path | None, before: str | None, since: str | None, server: str, session: str, person: str,
    tool: str, texts: Sequence[str], everything: bool, compact: bool, dry_run: bool, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Delete records for good, from the storage file and from its log.

    Shows how many there are and asks first. A record is deleted if it fits every option that is given. Names of tools
    and approvals stay, so that no other tool can take their place; so do models, unless --all is given.

    \b
    foretool forget --since 1h
    foretool forget --text "project falcon" --dry-run
    foretool forget --server bank --yes
    foretool forget --person 00u1ab2cd3
    """
    config = load(path)
    if compact:
        return _only_compact(config.storage, as_json=as_json)
    selection = Selection(
        _read_time("--since", since) or 0.0,
        _read_time("--before", before),
        server,
        session,
        find_principal(config, person),
        tool,
        tuple(texts),
        everything,
    )
    _check(selection)
    if not store_exists(config.storage):
        return complain(f"forget: {config.storage} does not exist; nothing is on record", WRONG)
    with open_store(config.storage, busy_ms=_BUSY_MS) as store:
        show = partial(_print, selection)
        found = store.forgetting.forget(selection, dry=True)
        if not selection.everything and (vectors := store.vectors.count(_digests_of(found.tasks))):
            found = replace(found, counts={**found.counts, "vectors": found.counts.get("vectors", 0) + vectors})
        if not found.counts and person:
            _say_who_is_known(store, person, as_json=as_json)
        if not found.counts or dry_run:
            output.show(Outcome(found.counts, False, ()), as_json, show)
            if found.counts and not as_json:
                output.say("Nothing was deleted.")
            unknown = _find_unknown(config, selection, person) if not found.counts else []
            return complain(f"forget: nothing on record is called {' or '.join(unknown)}", WRONG) if unknown else 0
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise click.UsageError("this deletes records for good: add --yes, or --dry-run to count them.")
            show(Outcome(found.counts, False, ()))
            if not output.agrees("Delete them for good?", left="Nothing was deleted."):
                output.say("Nothing was deleted.")
                return WRONG
        with output.waiting("deleting, and rewriting what is left"):
            outcome = _forget(config, store, selection)
    remains = (*outcome.remains, *_find_texts(config.storage, selection.texts))
    return output.show(Outcome(outcome.counts, True, remains), as_json, show)


def _only_compact(storage: StorePlace, *, as_json: bool) -> int:
    """Remove the traces of earlier deletions; the exit status says whether it was possible."""
    with open_store(storage, busy_ms=_BUSY_MS) as store:
        is_done = _compact(store)
    remains = () if is_done else (f"{storage}-wal: another process uses this log",)
    if isinstance(storage, ServerAddress):
        remains = (f"{storage}: {_KEPT_BY_SERVER if is_done else _STILL_IN_USE}",)
    output.show(Outcome({}, is_done, remains), as_json, lambda each: _print_compacted(each, storage))
    return int(not is_done)


def _print_compacted(outcome: Outcome, storage: StorePlace) -> None:
    for line in outcome.remains:
        output.say(f"remains: {line}.", "yellow")
    if outcome.is_done:
        said = "no trace of what was deleted is left in the file or its log"
        if isinstance(storage, ServerAddress):
            said = "its tables are vacuumed; no query finds what was deleted"
        output.say(f"{storage}: {said}.", "green")


def _check(selection: Selection) -> None:
    if selection == Selection():
        raise click.UsageError(
            "say what to forget: --since, --before, --server, --session, --person, --tool, --text or --all."
        )
    if selection.everything and selection != Selection(everything=True):
        raise click.UsageError("--all deletes everything; leave out the other options, or leave out --all.")
    if not all(map(str.strip, selection.texts)):
        raise click.BadParameter("expected words, found an empty text.", param_hint="--text")


def _find_unknown(config: Config, selection: Selection, person: str) -> list[str]:
    """Return the names of a selection that fits nothing: a typo would look like a success. A server of the config, and
    what is narrowed by time or words, may have nothing on record. `person`: as it was typed."""
    if selection.texts or selection.since or selection.before:
        return []
    server = "" if selection.server in config.prefixes else selection.server
    return [repr(each) for each in (server, selection.session, person, selection.tool) if each]


def _read_time(option: str, text: str | None) -> float | None:
    """Read how long ago something was, or a date. Returns seconds since 1970."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - read_duration(text)
    except click.BadParameter:
        expected = f"expected a time like 7d, 12h or 30min, or a date like 2026-01-31, found {text!r}."
        raise click.BadParameter(expected, param_hint=f"'{option}'") from None


def _forget(config: Config, store: Store, selection: Selection) -> Outcome:
    models = len(store.artifacts.served())
    remains = _end_unconfirmed(config, store) if selection.everything else []
    forgotten: Forgotten = store.forgetting.forget(selection)
    counts = dict(forgotten.counts)
    if vectors := store.vectors.forget(_digests_of(forgotten.tasks)):
        counts["vectors"] = counts.get("vectors", 0) + vectors
    remains += _end_grants(config, store, forgotten.grants)
    if selection.everything:
        store.artifacts.bump_version()
    elif models:
        remains.append(
            f"{output.plural(models, 'learned model')} still serve: models keep statistics of what they learned from,"
            " no texts; `foretool learn` trains new ones, `foretool forget --all` deletes them"
        )
    if selection.person and (entries := len(_entries_of(store, selection.person))):
        remains.append(
            f"the audit log names this person in {entries if entries < _SHOWN else f'{_SHOWN} or more'} entries;"
            " no command deletes them"
        )
    running = sorted(proxy.pid for proxy in find_running(store.serving.states()))
    if running:
        pids = ", ".join(map(str, running))
        unnamed = "; the same command forgets these too, and they are not learned from" if selection.person else ""
        remains.append(f"running proxies (process {pids}) may still write records of sessions that go on{unnamed}")
    is_compact = _compact(store)
    if isinstance(store.path, ServerAddress):
        remains.append(f"{store.path}: {_KEPT_BY_SERVER if is_compact else _STILL_IN_USE}")
    elif not is_compact:
        remains.append(
            f"{store.path}-wal: another process uses this log, so traces may stay in it until that process ends;"
            " then run the same command with --compact"
        )
    return Outcome(counts, True, tuple(remains))


def find_principal(config: Config, person: str) -> str:
    """Return the principal of a person who is named by it, or by their subject at the authorization server."""
    access = config.settings.access
    if access is None or not person or person.startswith(_PRINCIPALS):
        return person
    return str(packs.require(packs.PRINCIPAL_OF, "forget")(access.issuer, person))


def _entries_of(store: Store, person: str) -> list[AuditEntry]:
    """Return the latest entries of the audit log with this principal or name."""
    return store.audit.find(AuditFilter(principal=person), _SHOWN)


def _say_who_is_known(store: Store, name: str, *, as_json: bool) -> None:
    """Name the people who go by a name in the audit log: others may have the same, so no name selects anybody."""
    known = sorted({each.principal for each in _entries_of(store, name) if each.principal != name})
    if known and not as_json:
        output.say(f"{name!r} is a name that others may have too; in the audit log it stands for {', '.join(known)}.")


def _end_grants(config: Config, store: Store, found: Sequence[SealedGrant]) -> list[str]:
    """End what people had allowed at the authorization servers as well, and keep that in the audit log. Returns a line
    for each server where that was not possible."""
    if not found:
        return []
    by = own_person()
    store.audit.add(
        [
            AuditEntry(
                time.time(), by.principal, by.name, "", "", "connect", each.server, "disconnected",
                f"the grant of {each.person} was forgotten",
            )
            for each in found
        ]
    )  # fmt: skip
    return _describe_problems(interrupts.run(_grants(config, store).end_all(found)))


def _end_unconfirmed(config: Config, store: Store) -> list[str]:
    """End at the authorization servers what people have allowed and not confirmed yet. Returns lines as `_end_grants`
    does."""
    if not any(each.per_user is not None and each.per_user.kind == "grant" for each in config.servers.values()):
        return []
    return _describe_problems(interrupts.run(_grants(config, store).end_unconfirmed()))


def _grants(config: Config, store: Store) -> Any:
    make = packs.require(packs.GRANTS, "forget")
    return make(lambda: store, lambda: config.settings.seal_keys, "", lambda: config.servers)


def _describe_problems(problems: Mapping[tuple[str, str], int]) -> list[str]:
    return [
        f"what {'1 person' if count == 1 else f'{count:,} people'} had allowed at server {server!r} is deleted here,"
        f" but its authorization server may still hold it ({reason}); end it there as well"
        for (server, reason), count in problems.items()
    ]


def _digests_of(tasks: Sequence[str]) -> set[bytes]:
    """Return under what the vectors of tasks are kept: of their whole texts and of the parts that are searched with."""
    from foretool.retrieval.corpus import digest, digest_query
    from foretool.server.discovery.query_vectors import texts_of_prompt, texts_of_search

    texts = {text for each in tasks for text in (each, *texts_of_search(each), *texts_of_prompt(each))}
    return {digest_of(text) for text in texts for digest_of in (digest, digest_query)}


def _compact(store: Store) -> bool:
    try:
        return store.forgetting.compact()
    except StorageError:  # another process writes all the time, or there is no room for a copy
        return False


def _find_texts(storage: StorePlace, texts: Sequence[str]) -> list[str]:
    """Say in which files of the store a text still stands, byte for byte."""
    found: list[str] = []
    if isinstance(storage, ServerAddress):
        return found
    for file in (storage, storage.with_name(storage.name + "-wal")):
        data = file.read_bytes() if file.exists() else b""
        for text in texts:
            forms = (text.encode(), json.dumps(text)[1:-1].encode())
            if any(form in data for form in forms):
                found.append(f"{file}: {text!r} still stands there, in what is known of a server; see --server")
    return found


def _print(selection: Selection, outcome: Outcome) -> None:
    if not outcome.counts:
        output.say("Nothing on record fits; nothing was deleted.")
        return
    nouns = {**_NOUNS, **_OF_TOOLS} if selection.server or selection.tool else _NOUNS
    output.table(("records#", "of"), [(f"{count:,}", nouns[kind]) for kind, count in outcome.counts.items()])
    if selection.names_tools_alone and "exposures" in outcome.counts:
        output.say("Those lists of clients stay, without these tools.")
    if outcome.is_done:
        output.say("They are deleted for good.", "green")
    for line in outcome.remains:
        output.say(f"remains: {line}.", "yellow")
