"""What a proxy asks of its store on the event loop takes as many steps of SQLite with a long log as with a short one.

A scan of the log would stop all clients: a million calls take seconds. So every method of the store stands below either
among those that the loop calls, which are counted, or among those that commands, pages and threads call.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from counted_steps import Counted, count_steps
from msgspec.structs import replace
from stored_records import CALL, DISCOVERY, EXPOSURE, FAILURE, KEPT, MISS, SESSION, STATE, UPSTREAM, connection_of, tool

from bench.storage.ledger import add_sums, copy_sessions, write_ledger
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import (
    AuditEntry,
    ClientRecord,
    Definition,
    MissFilter,
    Prompt,
    StepRecord,
    WorkingSet,
)
from foretool.storage.sql import calls
from foretool.storage.sql.database import Subject
from foretool.storage.steps import finish
from foretool.storage.store import Store

ROOT: Final = Path(__file__).parents[3]
CALLS: Final = 3000
TIMES: Final = 6
"""How many times longer the longer log is."""
NOW: Final = time.time()

TOOL: Final = tool("log")
HELD: Final = Definition("git", "tool", "log", "h9", b"{}", "held", NOW, exposed="git__log", fingerprint="f1")
STEP: Final = StepRecord("s1", NOW, "read the log", (), (), 10, 20, 0.5, None, "", False, "", 1.0)
ENTRY: Final = AuditEntry(NOW, "sub:1", "Ann", "codex", "", "call", "git__log", "ok", session="s1")
SERVED: Final = WorkingSet("key", 10**6, (TOOL.id,), b"[]", NOW, "inputs")

Ask = Callable[[Store], object]

ON_LOOP: Final[Mapping[str, Ask]] = {
    "approvals.version": lambda store: store.approvals.version,
    "approvals.decided_since": lambda store: store.approvals.decided_since(0),
    "approvals.heads": lambda store: store.approvals.heads("git", "tool"),
    "approvals.approved": lambda store: store.approvals.approved("git", "tool", "log"),
    "approvals.add_first": lambda store: finish(store.approvals.add_first([replace(HELD, state="approved")])),
    "approvals.reached_so": lambda store: store.approvals.reached_so(HELD.hash),
    "approvals.take_over": lambda store: store.approvals.take_over("renamed", "git", {}),
    "approvals.approve_listed": lambda store: store.approvals.approve_listed([replace(HELD, state="approved")]),
    "approvals.hold": lambda store: finish(store.approvals.hold("git", ["tool"], [replace(HELD, hash="h10")])),
    "approvals.held": lambda store: store.approvals.held(),
    "approvals.undecided": lambda store: store.approvals.undecided("git"),
    "approvals.refused": lambda store: store.approvals.refused("tool"),
    "artifacts.version": lambda store: store.artifacts.version,
    "artifacts.served": lambda store: store.artifacts.served(),
    "artifacts.load_intact": lambda store: store.artifacts.load_intact("weights"),
    "artifacts.history": lambda store: store.artifacts.history("run", 1),
    "audit.add": lambda store: store.audit.add([ENTRY]),
    "calls.record": lambda store: store.calls.record([CALL], [replace(MISS, call=1)]),
    "calls.recent": lambda store: store.calls.recent(20),
    "calls.failing": lambda store: store.calls.failing(1000),
    "calls.shared_events": lambda store: store.calls.shared_events(500),
    "calls.misses_of": lambda store: store.calls.misses_of("s1", NOW - 1),
    "calls.missed_with": lambda store: store.calls.missed_with(replace(EXPOSURE, id=5)),
    "calls.fold_some": lambda store: store.calls.fold_some(),
    "calls.counted_usage": lambda store: store.calls.counted_usage(),
    "calls.counted_usage_of": lambda store: store.calls.counted_usage_of("work"),
    "calls.of_session": lambda store: store.calls.of_session("s1", NOW - 1, NOW),
    "catalog.known_as": lambda store: store.catalog.known_as([("git", "f1", "likeness")]),
    "catalog.load": lambda store: store.catalog.load([("git", "f1")]),
    "calls.revise": lambda store: store.calls.revise([(replace(MISS, at=NOW), MISS), (replace(MISS, at=NOW), None)]),
    "catalog.changes": lambda store: store.catalog.changes(),
    "catalog.tool_heads": lambda store: store.catalog.tool_heads([("git", "f1")], 80),
    "catalog.tools_named": lambda store: store.catalog.tools_named([(TOOL.name, "git", "f1")]),
    "catalog.save_upstream": lambda store: finish(store.catalog.save_upstream(UPSTREAM, [TOOL, tool("show")])),
    "catalog.save_token_counts": lambda store: store.catalog.save_token_counts({TOOL.schema_hash: 7}),
    "catalog.exposed_names": lambda store: store.catalog.exposed_names(),
    "catalog.save_exposed_names": lambda store: store.catalog.save_exposed_names({TOOL.id: ("git", "log")}),
    "clients.add_relist": lambda store: store.clients.add_relist(ClientRecord("codex", "1", "modern", 1, 1, 5.0, NOW)),
    "clients.set_code_sessions": lambda store: store.clients.set_code_sessions("codex", 3),
    "clients.spend_code_session": lambda store: store.clients.spend_code_session("codex"),
    "clients.get": lambda store: store.clients.get("codex", "1", "modern"),
    "costs.add_size": lambda store: store.costs.add_size(NOW, 13_141),
    "costs.take_turn": lambda store: store.costs.take_turn(NOW, int(NOW)),
    "discoveries.add": lambda store: store.discoveries.add(replace(DISCOVERY, at=NOW)),
    "discoveries.set_handle": lambda store: store.discoveries.set_handle(5, "h2"),
    "discoveries.set_tokens": lambda store: store.discoveries.set_tokens(5, 90),
    "discoveries.of_session": lambda store: store.discoveries.of_session("s1", NOW - 1, NOW),
    "discoveries.events": lambda store: store.discoveries.events(0.0, limit=64),
    "flows.add": lambda store: store.flows.add({(TOOL.id, TOOL.id, "id", "id"): 1}, NOW),
    "grants.load": lambda store: store.grants.load("git", "sub:1"),
    "grants.save": lambda store: store.grants.save("git", "sub:1", b"sealed", NOW),
    "grants.replace": lambda store: store.grants.replace("git", "sub:1", b"sealed", b"other", NOW),
    "grants.remove": lambda store: store.grants.remove("git", "sub:1"),
    "grants.begin": lambda store: store.grants.begin(b"1", b"sealed", NOW),
    "grants.take": lambda store: store.grants.take(b"1", NOW),
    "grants.take_late": lambda store: store.grants.take_late(NOW, 50),
    "kept_calls.find": lambda store: store.kept_calls.find("x"),
    "kept_calls.save": lambda store: store.kept_calls.save(KEPT),
    "kept_calls.shorten": lambda store: store.kept_calls.shorten("x", NOW),
    "kept_calls.trim": lambda store: store.kept_calls.trim("", 100, 1 << 25),
    "kept_calls.forget_old": lambda store: store.kept_calls.forget_old(NOW),
    "retention.take_turn": lambda store: store.retention.take_turn(NOW, int(NOW)),
    "serving.working_set": lambda store: store.serving.working_set("key"),
    "serving.save_working_set": lambda store: store.serving.save_working_set(SERVED),
    "serving.save_state": lambda store: store.serving.save_state(STATE),
    "serving.tell_once": lambda store: store.serving.tell_once("a notice"),
    "serving.states": lambda store: store.serving.states(),
    "serving.note_seen": lambda store: store.serving.note_seen("", 77, NOW),
    "serving.clear_states": lambda store: store.serving.clear_states(77),
    "serving.failures": lambda store: store.serving.failures(),
    "serving.save_failure": lambda store: store.serving.save_failure(FAILURE),
    "serving.clear_failure": lambda store: store.serving.clear_failure("dead", "e"),
    "sessions.begin": lambda store: store.sessions.begin(replace(SESSION, started_at=NOW)),
    "sessions.name_person": lambda store: store.sessions.name_person("s1", "sub:1", learns=True, at=NOW),
    "sessions.unnamed": lambda store: store.sessions.unnamed({"p1", "p2"}),
    "sessions.name_again": lambda store: store.sessions.name_again(replace(SESSION, key="p1"), "sub:2"),
    "sessions.end": lambda store: store.sessions.end("s1", NOW),
    "sessions.first_at": lambda store: store.sessions.first_at(),
    "sessions.add_exposure": lambda store: store.sessions.add_exposure(replace(EXPOSURE, at=NOW)),
    "sessions.exposures": lambda store: store.sessions.exposures("s1"),
    "sessions.recent": lambda store: store.sessions.recent(50),
    "sessions.beginning_with": lambda store: store.sessions.beginning_with("0123456789abcdef"),
    "sessions.reopen": lambda store: store.sessions.reopen("s1"),
    "sessions.exposure": lambda store: store.sessions.exposure(5),
    "tasks.latest": lambda store: (store.tasks.latest(50), store.tasks.latest(5, "work")),
    "tasks.add_prompt": lambda store: store.tasks.add_prompt(Prompt(NOW, "read the log", "s1")),
    "tasks.hand_over": lambda store: store.tasks.hand_over(Prompt(NOW, "read the log"), "s1"),
    "tasks.prompts": lambda store: store.tasks.prompts(0.0, 64),
    "tasks.add_step": lambda store: store.tasks.add_step(STEP),
    "vectors.save": lambda store: store.vectors.save("encoder", {b"digest": b"data"}),
    "wordings.all": lambda store: store.wordings.all(),
}  # fmt: skip
"""Each method that serving calls on the event loop, asked as serving asks it."""

OFF_LOOP: Final = {
    "approvals": "decide note_shown shown",
    "artifacts": "bump_version add active roll_back add_demonstrations latest_demonstrations count_demonstrations",
    "audit": "find each",
    "browsing": "sessions calls_of misses_of neighbours counts usage",
    "calls": "fold_usage get events events_before used_since last_used retries first_of_latest latest_of events_between"
    " miss misses find_misses count_misses usage",
    "catalog": "changed_tools names versions",
    "clients": "set_whole all",
    "costs": "part add waiting sums sizes first_size last_list clients",
    "discoveries": "count_by_session get recent answered answers first_calls needs",
    "exporting": "calls misses exposures call_events task_events prompts",
    "flows": "all",
    "forgetting": "forget compact",
    "retention": "touch_vectors prune",
    "sessions": "people get ended conversations",
    "tasks": "steps",
    "vectors": "load missing forget known count",
    "wordings": "save remove",
}
"""By subject, the methods that commands, pages, the learner and threads call: they may read the whole log."""

IN_THREADS: Final = {
    "costs.part": "recording/costs.py",
    "costs.add": "recording/costs.py",
    "costs.clients": "recording/costs.py",
    "costs.first_size": "recording/costs.py",
    "costs.last_list": "recording/costs.py",
    "costs.sizes": "recording/costs.py",
    "costs.sums": "recording/costs.py",
    "costs.waiting": "recording/costs.py",
    "sessions.ended": "recording/costs.py",
    "retention.prune": "housekeeping.py",
    "retention.touch_vectors": "housekeeping.py",
    "vectors.load": "catalog/embedding.py",
    "vectors.missing": "catalog/embedding.py",
}
"""Of those, the ones that a room which serves clients names, with the file where it calls them in a thread."""

STORE_METHOD: Final = re.compile(r"\b_*(?:store|kept)_*\.(\w+)\.(\w+)")
ELSEWHERE: Final = ("commands", "page", "ledger", "replay", "learning", "enrichment", "checks")
"""Rooms of the server whose work is done by a command, another process or a thread."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of two stores that differ in the length of the log alone."""
    found = []
    for times in (1, TIMES):
        config = load(write_ledger(tmp_path_factory.mktemp("log"), CALLS, 300, 20.0, NOW))
        assert isinstance(config.storage, Path)
        copy_sessions(config.storage, times)
        add_sums(config.path)
        with closing(sqlite3.connect(config.storage)) as file:
            fill_rest(file, CALLS * times)
        found.append(config.storage)
    return found


def fill_rest(file: sqlite3.Connection, count: int) -> None:
    """Write what the made-up ledger has none of, as many times as there are calls."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    at = f"{NOW} - 1000 + i * 0.001"
    file.execute(
        f"{numbers} INSERT INTO steps (session, at, task, tools, fragments, tokens, budget, probability, fallback,"
        f" cached, error, took_ms) SELECT 's' || i, {at}, 'task ' || i, '[]', '[]', 1, 1, 0.5, '', 0, '', 1.0 FROM n"
    )
    file.execute(
        f"{numbers} INSERT INTO session_people (session, person, learns, at) SELECT 'p' || i, 'sub:2', 1, {at} FROM n"
    )
    file.execute(
        f"{numbers} INSERT INTO audit (at, principal, name, client, profile, action, target, outcome, detail, session)"
        f" SELECT {at}, 'sub:2', '', '', '', 'call', 't', 'ok', '', '' FROM n"
    )
    file.commit()


def test_every_method_of_the_store_is_among_those_of_the_loop_or_among_the_others() -> None:
    with open_store(":memory:") as store:
        subjects = {name: type(subject) for name, subject in vars(store).items() if isinstance(subject, Subject)}
    methods = {
        f"{name}.{method}" for name, kind in subjects.items() for method in vars(kind) if not method.startswith("_")
    }
    others = {f"{subject}.{method}" for subject, names in OFF_LOOP.items() for method in names.split()}
    assert sorted(methods) == sorted([*ON_LOOP, *others])


def test_the_rooms_that_serve_clients_call_no_other_method_but_in_threads() -> None:
    found = {(name, place) for path in serving_files() for name, place in called(path)}
    known = {f"{subject}.{method}" for subject, names in OFF_LOOP.items() for method in names.split()}
    assert len({name for name, _ in found if name in ON_LOOP}) > 30, "the code names its store in another way now"
    assert {(name, place) for name, place in found if name in known} == set(IN_THREADS.items())


def serving_files() -> Iterator[Path]:
    # `doctor`, `hint` and `inspection` are commands; the rest of the server is what a proxy runs.
    for path in sorted((ROOT / "server").rglob("*.py")):
        parts = path.relative_to(ROOT / "server").parts
        if parts[0] not in (*ELSEWHERE, "doctor.py", "hint.py", "inspection.py", "probing.py", "cli.py"):
            yield path


def called(path: Path) -> Iterator[tuple[str, str]]:
    """The methods of a store that a file names, and the file's place in the server."""
    for subject, method in STORE_METHOD.findall(path.read_text("utf-8")):
        yield f"{subject}.{method}", str(path.relative_to(ROOT / "server"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_LOOP)
def test_a_method_of_the_loop_takes_no_more_steps_with_a_longer_log(logs: list[Path], name: str) -> None:
    small, large = (count(path, ON_LOOP[name]) for path in logs)
    assert small.steps, "no statement was run"
    assert small.growth(large) == []


def count(path: Path, ask: Ask) -> Counted:
    """What a method does, in a transaction that is rolled back, so that the next one finds the same log."""
    with open_store(path) as store:
        with suppress(_RolledBackError), store.atomic():
            with count_steps(connection_of(store)) as counted:
                ask(store)
            raise _RolledBackError
        return counted


OF_ONE: Final = MissFilter(client="Cursor", profile="work", recovered=False)


def test_the_latest_misses_of_a_client_are_found_without_all_sessions(logs: list[Path]) -> None:
    small, large = (count(path, lambda store: store.calls.find_misses(OF_ONE, 5)) for path in logs)
    assert small.growth(large) == []


def test_misses_of_a_client_in_a_profile_are_counted_by_one_look_at_the_sessions(logs: list[Path]) -> None:
    with open_store(logs[0]) as store, count_steps(connection_of(store)) as counted:
        counts = store.calls.count_misses(OF_ONE)
        assert sum(each.count for each in counts) == len(store.calls.find_misses(OF_ONE)) > 0
    (query,) = (sql for sql in counted.steps if sql.startswith("SELECT tool, cause"))
    with open_store(logs[0]) as store:
        plan = connection_of(store).execute(f"EXPLAIN QUERY PLAN {query}", (None,) * query.count("?")).fetchall()
    scans = [detail for _, _, _, detail in plan if detail.startswith("SCAN")]
    assert len(scans) == 2 and "COVERING INDEX" in scans[0] and scans[1].startswith("SCAN sessions"), plan


def test_the_use_of_tools_is_counted_in_parts_of_one_size(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FOLDED", 100)  # less than the shorter log has of calls and of misses

    def fold(store: Store) -> None:
        connection_of(store).execute("DELETE FROM usage_folded")
        assert store.calls.fold_some(), "one part counted all"

    small, large = (count(path, fold) for path in logs)
    assert small.growth(large) == []


class _RolledBackError(Exception):
    """Ends a transaction."""


def test_a_scan_of_the_log_would_be_seen(logs: list[Path]) -> None:
    """A check of the check: what commands ask does grow."""
    for ask in (
        lambda store: store.sessions.conversations(5),
        lambda store: store.calls.count_misses(MissFilter(recovered=False)),
        lambda store: store.statistics(),
    ):
        small, large = (count(path, ask) for path in logs)
        assert small.growth(large), ask
