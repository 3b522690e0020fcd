"""One file, many processes: what is written is there, whole, and comes back as the records it was."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from foretool.storage.migrations import MIGRATIONS, migrate
from foretool.storage.records import (
    Call,
    Changes,
    ClientRecord,
    Discovery,
    Exposure,
    Match,
    Miss,
    Prompt,
    SessionRecord,
    Statistics,
    StepRecord,
    Tool,
    ToolId,
    ToolVersion,
    UpstreamRecord,
    UpstreamState,
    Usage,
    WorkingSet,
)
from foretool.storage.store import StorageError, Store

SESSION = SessionRecord("s1", "claude-code", "2.1", "modern", "stdio", "default", 10.0)
CALL = Call("s1", 11.0, ToolId("git__log"), "git", "name", False, "ok", 1.5, True, '{"repo":"string"}', 0, handle="h1")
MISS = Miss(
    session="s1",
    at=12.0,
    tool="git__blame",
    noticed="call",
    cause="budget",
    rank=7,
    of=40,
    query="who wrote this line",
    history=(ToolId("git__log"),),
    exposure=1,
    discovery=1,
    change="raise the budget by 120 tokens",
    recovered="called",
    turns=1,
    tokens=310,
    parts={"lexical": 0.5},
)
EXPOSURE = Exposure("s1", 10.5, "frozen", 2, (ToolId("git__log"), ToolId("git__diff")), 412, "list")
DISCOVERY = Discovery(
    session="s1",
    at=11.5,
    task="who wrote this line",
    names=("git__blame",),
    sufficiency=None,
    level="high",
    matches=(Match(ToolId("git__blame"), 1, 2.5, {"lexical": 2.5}),),
    tokens=210,
    took_ms=0.7,
    handle="h1",
)
UPSTREAM = UpstreamRecord("git", "f1", "legacy", '{"name":"git"}', "Use absolute paths.", '{"tools":{}}', 5.0)
STATE = UpstreamState(77, 9.0, "git", "ready", 9.5, "legacy", 12, 1, 3, "", ("starting", "ready"))


def tool(name: str, schema_hash: str = "", upstream: str = "git", tokens: int | None = None) -> Tool:
    digest = schema_hash or f"hash of {name}"
    return Tool(ToolId(f"{upstream}__{name}"), upstream, name, b'{"name":"' + digest.encode() + b'"}', digest, tokens)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "foretool.db"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(":memory:") as store:
        yield store


# Opening


def test_a_new_file_is_private_and_its_directory_too(path: Path) -> None:
    with Store.open(path) as store:
        store.record([CALL])
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == {"foretool.db": 0o600, "foretool.db-wal": 0o600, "foretool.db-shm": 0o600}


def test_opening_an_up_to_date_file_and_serving_from_it_imports_nothing_heavy(path: Path) -> None:
    Store.open(path).close()
    code = (
        "import sys, pathlib; from foretool.storage.store import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1])); store.load_catalog([('git', 'f1')]); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(path)]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert not {"sqlite_utils", "click", "pydantic", "numpy", "asyncio"} & loaded


def test_a_file_of_a_newer_foretool_is_refused(path: Path) -> None:
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError) as caught:
        Store.open(path)
    assert str(caught.value) == (
        f"{path}: written by a newer foretool (schema 99, this one knows {len(MIGRATIONS)});"
        " upgrade foretool, or set another storage path"
    )


def test_a_file_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"made by another program \(schema 0\); set another storage path"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_named_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, " * 512)
    with pytest.raises(StorageError) as caught:
        Store.open(path)
    assert str(caught.value).startswith(f"{path}: not a readable SQLite file (file is not a database); it was left")
    assert not caught.value.temporary
    assert path.read_bytes() == b"not a database, " * 512


def test_damage_found_later_is_an_error_of_storage(path: Path) -> None:
    with Store.open(path) as store:
        store.record([CALL] * 5000)
    with path.open("r+b") as file:
        half = path.stat().st_size // 2
        file.seek(half)
        file.write(b"\xff" * half)
    with Store.open(path) as store, pytest.raises(StorageError, match="not a readable SQLite file"):
        store.recent_calls(10_000)


def test_a_directory_that_cannot_be_made_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/foretool\.db: .*; check the storage path and its permissions"):
        Store.open(tmp_path / "file" / "foretool.db")


# Calls and misses


def test_a_call_comes_back_as_it_was(store: Store) -> None:
    odd = replace(CALL, hidden=True, sent=False, via="bridge", outcome="lost", arguments="\x00\U0001f600", discovery=4)
    store.record([CALL])
    store.record([odd])
    assert store.recent_calls(10) == [replace(odd, id=2), replace(CALL, id=1)]
    assert store.call(1) == replace(CALL, id=1)
    assert store.call(3) is None


def test_a_miss_points_at_the_call_of_its_batch_that_revealed_it(store: Store) -> None:
    store.record([CALL])
    blame = replace(CALL, tool=ToolId("git__blame"), hidden=True)
    store.record([CALL, blame], [replace(MISS, call=2), replace(MISS, noticed="nothing_found", tool="")])
    revealed, alone = store.miss(1), store.miss(2)
    assert revealed == replace(MISS, id=1, call=3)
    assert store.call(3) == replace(blame, id=3)
    assert alone == replace(MISS, id=2, noticed="nothing_found", tool="")


def test_a_miss_without_calls_is_recorded(store: Store) -> None:
    store.record([], [MISS])
    store.record([])
    assert store.misses_since(0) == [replace(MISS, id=1)]


def test_a_miss_cannot_point_outside_its_batch(store: Store) -> None:
    with pytest.raises(ValueError, match="place of a call in its batch of 1"):
        store.record([CALL], [replace(MISS, call=2)])
    assert store.recent_calls(1) == []


def test_misses_since_a_time_are_newest_first(store: Store) -> None:
    store.record([], [replace(MISS, at=at) for at in (3.0, 1.0, 2.0)])
    assert [miss.at for miss in store.misses_since(2.0)] == [3.0, 2.0]
    assert [miss.at for miss in store.misses_since(0.0, limit=1)] == [3.0]


def test_causes_are_counted(store: Store) -> None:
    store.record([], [MISS, replace(MISS, cause="rank"), replace(MISS, cause="rank"), replace(MISS, at=1.0)])
    assert list(store.causes_since(2.0).items()) == [("rank", 2), ("budget", 1)]


def test_the_history_of_a_session_is_its_tools_in_order(store: Store) -> None:
    store.record([replace(CALL, session="other")])
    store.begin_session(SESSION)
    late, early = replace(CALL, at=30.0, tool=ToolId("c")), replace(CALL, at=20.0, tool=ToolId("b"))
    store.record([CALL, replace(CALL, session="other"), late, early])
    assert store.history("s1") == ["git__log", "b", "c"]
    assert [call.id for call in store.session_calls("s1")] == [2, 5, 4]
    assert store.history("other") == ["git__log", "git__log"]
    assert store.history("unknown") == []


def test_usage_counts_calls_and_misses_of_a_profile(store: Store) -> None:
    store.begin_session(SESSION)
    store.begin_session(replace(SESSION, key="s2", profile="work"))
    log, diff = CALL, replace(CALL, tool=ToolId("git__diff"), session="s2", at=20.0)
    store.record([log, replace(log, at=15.0), diff], [MISS, replace(MISS, noticed="unknown_name", tool="git_blam")])
    blame = Usage(ToolId("git__blame"), 0, 1, 0.0)
    assert store.usage() == [Usage(log.tool, 2, 0, 15.0), Usage(diff.tool, 1, 0, 20.0), blame]
    assert store.usage("default") == [Usage(log.tool, 2, 0, 15.0), blame]
    assert store.usage("work") == [Usage(diff.tool, 1, 0, 20.0)]
    assert store.usage("default", since=15.0) == [Usage(log.tool, 1, 0, 15.0)]


# Sessions, exposures, discoveries


def test_a_session_begins_and_ends(store: Store) -> None:
    store.begin_session(SESSION)
    store.begin_session(replace(SESSION, profile="a second begin changes nothing"))
    store.begin_session(replace(SESSION, key="s2", started_at=20.0))
    store.end_session("s1", 30.0)
    assert store.sessions() == [replace(SESSION, key="s2", started_at=20.0), replace(SESSION, ended_at=30.0)]
    assert store.session("s1") == replace(SESSION, ended_at=30.0)
    assert store.session("s3") is None


def test_an_exposure_comes_back_and_equal_lists_are_kept_once(path: Path) -> None:
    with Store.open(path) as store:
        assert [store.add_exposure(EXPOSURE), store.add_exposure(replace(EXPOSURE, at=11.0))] == [1, 2]
        assert store.add_exposure(replace(EXPOSURE, session="s2", tools=())) == 3
        assert store.exposure(2) == replace(EXPOSURE, at=11.0, id=2)
        assert store.exposure(4) is None
        assert store.session_exposures("s1") == [replace(EXPOSURE, id=1), replace(EXPOSURE, at=11.0, id=2)]
    assert rows(path, "SELECT tools FROM lists") == [('["git__log","git__diff"]',), ("[]",)]


def test_a_discovery_comes_back_as_it_was(store: Store) -> None:
    assert store.add_discovery(DISCOVERY) == 1
    assert store.add_discovery(replace(DISCOVERY, sufficiency=0.25, matches=(), level="none")) == 2
    assert store.discovery(1) == replace(DISCOVERY, id=1)
    assert [discovery.sufficiency for discovery in store.recent_discoveries(5)] == [0.25, None]
    assert store.discovery(3) is None


def test_tasks_are_listed_once_and_the_latest_first(store: Store) -> None:
    store.begin_session(SESSION)
    for at, task, session in [(1.0, "a", "s1"), (2.0, "b", "s2"), (3.0, "a", "s1"), (4.0, "", "s1")]:
        store.add_discovery(replace(DISCOVERY, at=at, task=task, session=session))
    assert store.tasks() == ["a", "b"]
    assert store.tasks(since=2.5) == ["a"]
    assert store.tasks(limit=1) == ["a"]
    assert store.tasks(profile="work") == []


def test_prompts_come_back_newest_first_and_are_tasks_of_everyone(store: Store) -> None:
    asked = [Prompt(2.0, "mend the roof", "c1", "/home/me"), Prompt(1.0, "paint it")]
    assert [store.add_prompt(each) for each in asked] == [1, 2]
    assert store.prompts() == [replace(asked[0], id=1), replace(asked[1], id=2)]
    assert (store.prompts(since=1.5), store.prompts(limit=1)) == ([replace(asked[0], id=1)],) * 2
    store.add_discovery(replace(DISCOVERY, at=1.5, task="find a ladder"))
    assert store.tasks() == ["mend the roof", "find a ladder", "paint it"]
    assert store.tasks(profile="work") == []


def test_steps_come_back_as_they_were(store: Store) -> None:
    first = StepRecord(
        "s1", 1.0, "mend", (ToolId("a__b"),), ("file x#y",), 120, 2000, 0.7, None, "none", False, "", 1.5
    )
    second = replace(first, at=2.0, sufficiency=0.2, fallback="expand", cached=True)
    assert [store.add_step(each) for each in (first, second)] == [1, 2]
    assert store.steps() == [replace(second, id=2), replace(first, id=1)]
    assert store.steps(since=1.5) == [replace(second, id=2)]


def test_old_prompts_and_steps_are_pruned_but_for_the_newest(store: Store) -> None:
    for at in (1.0, 2.0, 3.0):
        store.add_prompt(Prompt(at, f"{at}"))
    assert store.prune(10.0) == 2
    assert [each.at for each in store.prompts()] == [3.0]


# The client ledger


def test_the_ledger_counts_and_takes_the_median_delay(store: Store) -> None:
    store.begin_session(SESSION)
    key = ("claude-code", "2.1", "modern")
    assert store.client(*key) == ClientRecord(*key, 0, 0, 0.0, 10.0)
    for ms, at in [(30.0, 11.0), (10.0, 12.0), (20.0, 13.0)]:
        store.add_client_relist(*key, announced=1, relisted=1, ms=ms, at=at)
    store.add_client_relist(*key, announced=1, relisted=0, at=14.0)
    store.add_client_relist("cursor", "1", "legacy", 1, 0)
    assert store.client(*key) == ClientRecord(*key, 4, 3, 20.0, 14.0)
    assert [record.client for record in store.clients()] == ["cursor", "claude-code"]
    assert store.client("vscode", "1", "legacy") is None


def test_the_median_is_of_the_latest_delays(store: Store) -> None:
    for ms in [1000.0] * 40 + [5.0] * 31:
        store.add_client_relist("c", "1", "legacy", 1, 1, ms)
    assert [(record.relisted, record.relist_ms) for record in store.clients()] == [(71, 5.0)]


# The catalogue


def test_the_catalogue_comes_back_in_the_order_asked_and_listed(store: Store) -> None:
    slack = replace(UPSTREAM, name="slack", era=None)
    store.save_upstream(UPSTREAM, [tool("log"), tool("blame", tokens=40)])
    store.save_upstream(slack, [tool("post", upstream="slack")])
    assert store.load_catalog([("slack", "f1"), ("gone", "f1"), ("git", "f1")]) == [
        (slack, [tool("post", upstream="slack")]),
        (UPSTREAM, [tool("log"), tool("blame", tokens=40)]),
    ]
    assert store.upstreams() == [UPSTREAM, slack]


def test_one_name_with_two_commands_is_two_upstreams(store: Store) -> None:
    other = replace(UPSTREAM, fingerprint="f2", listed_at=6.0)
    store.save_upstream(UPSTREAM, [tool("log")])
    store.save_upstream(other, [tool("diff")])
    assert store.load_catalog([("git", "f1")]) == [(UPSTREAM, [tool("log")])]
    assert store.load_catalog([("git", "f2")]) == [(other, [tool("diff")])]


def test_saving_an_upstream_tells_what_changed(store: Store) -> None:
    a, b, c = tool("a"), tool("b"), tool("c")
    assert store.save_upstream(UPSTREAM, [a, b]) == Changes(added=(a.id, b.id))
    assert store.save_upstream(UPSTREAM, [c, tool("b", "new")]) == Changes((c.id,), (b.id,), (a.id,))
    assert store.save_upstream(UPSTREAM, [tool("b", "new"), c]) == Changes()
    assert store.load_catalog([("git", "f1")]) == [(UPSTREAM, [tool("b", "new"), c])]


def test_every_version_of_a_tool_stays_on_record(store: Store) -> None:
    old, new = tool("log", "h1", tokens=10), tool("log", "h2")
    for at, fingerprint, definition in [(1.0, "f1", old), (2.0, "f2", new), (3.0, "f2", old), (4.0, "f2", new)]:
        store.save_upstream(replace(UPSTREAM, fingerprint=fingerprint, listed_at=at), [definition])
    assert store.versions("git", "log") == [
        ToolVersion("h1", old.definition, 10, 1.0),
        ToolVersion("h2", new.definition, None, 2.0),
    ]
    assert store.versions("git", "blame") == []


def test_tokens_belong_to_the_definition(store: Store) -> None:
    store.save_upstream(UPSTREAM, [tool("log", "h1")])
    store.set_tokens({"h1": 55, "never seen": 1})
    store.save_upstream(replace(UPSTREAM, fingerprint="f2"), [tool("log", "h1")])
    assert [record.tokens for _, tools in store.load_catalog([("git", "f1"), ("git", "f2")]) for record in tools] == [
        55,
        55,
    ]


def test_the_heads_of_all_tools_come_at_once_and_a_few_tools_by_name(store: Store) -> None:
    slack = replace(UPSTREAM, name="slack", fingerprint="f2")
    log, post = tool("log"), tool("post", upstream="slack", tokens=40)
    store.save_upstream(UPSTREAM, [log])
    store.save_upstream(slack, [post])
    head = log.definition[:9]
    assert store.tool_heads([("git", "f1")], 9) == [("git", log.id, "log", head)]
    assert [each[1] for each in store.tool_heads([("slack", "f2"), ("git", "f1")], 9)] == [log.id, post.id]
    assert store.tool_heads([("git", "f9")], 9) == []
    wanted = [(post.id, "slack", "f2"), (ToolId("git__nothing"), "git", "f1"), (log.id, "git", "f1")]
    assert store.tools_named(wanted) == [post, log]
    assert store.tools_named([(log.id, "git", "f2")]) == []


def test_the_version_of_the_catalogue_moves_only_when_it_changed(store: Store) -> None:
    versions = [store.catalog_version()]
    for upstream, tools in [
        (UPSTREAM, [tool("a"), tool("b")]),
        (replace(UPSTREAM, listed_at=9.0), [tool("a"), tool("b")]),
        (UPSTREAM, [tool("b"), tool("a")]),
        (replace(UPSTREAM, era="modern"), [tool("b"), tool("a")]),
    ]:
        store.save_upstream(upstream, tools)
        versions.append(store.catalog_version())
    store.save_exposed_names({ToolId("git__a"): ("git", "a")})
    store.save_exposed_names({ToolId("git__a"): ("git", "a")})
    assert [*versions, store.catalog_version()] == [0, 1, 1, 2, 3, 4]


def test_an_upstream_with_two_tools_of_one_name_is_refused_whole(store: Store) -> None:
    store.save_upstream(UPSTREAM, [tool("a")])
    with pytest.raises(StorageError, match=r"UNIQUE constraint failed: tools\.upstream, tools\.name"):
        store.save_upstream(UPSTREAM, [tool("b"), tool("b")])
    assert store.load_catalog([("git", "f1")]) == [(UPSTREAM, [tool("a")])]


def test_an_exposed_name_keeps_its_first_meaning(store: Store) -> None:
    log, diff = ToolId("git__log"), ToolId("git__diff")
    assert store.save_exposed_names({log: ("git", "log")}) == {}
    assert store.save_exposed_names({log: ("git2", "log"), diff: ("git", "diff")}) == {log: ("git", "log")}
    assert store.exposed_names() == {log: ("git", "log"), diff: ("git", "diff")}


# What running proxies share


def test_a_working_set_moves_only_to_a_later_epoch(store: Store) -> None:
    first = WorkingSet("default", 1, (ToolId("git__log"),), b'[{"name":"git__log", "x":1.0}]', 10.0, "v1")
    second = replace(first, epoch=2, listing=b"[]", tools=())
    assert store.working_set("default") is None
    assert store.save_working_set(first)
    assert not store.save_working_set(replace(first, listing=b"a slower proxy's"))
    assert store.working_set("default") == first
    assert store.save_working_set(second)
    assert store.working_set("default") == second


def test_the_states_of_upstreams_are_seen_by_others_until_cleared(path: Path) -> None:
    down = replace(STATE, upstream="slack", state="down", era=None, last_error="exit code 1", stderr=())
    other = replace(STATE, pid=78, started_at=8.0)
    with Store.open(path) as proxy, Store.open(path) as status:
        for state in (replace(STATE, state="starting"), STATE, down, other):
            proxy.save_state(state)
        assert status.states() == [other, STATE, down]
        proxy.clear_states(77, "slack")
        assert status.states() == [other, STATE]
        proxy.clear_states(77)
        assert status.states() == [other]


# Transactions


def test_a_block_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError), store.atomic():
        store.record([CALL])
        store.record([CALL, CALL], [MISS])
        raise RuntimeError
    assert (store.recent_calls(9), store.misses_since(0)) == ([], [])


def test_an_inner_block_that_fails_leaves_the_outer_ones_writes(store: Store) -> None:
    with store.atomic():
        store.record([CALL])
        with pytest.raises(RuntimeError), store.atomic():
            store.record([CALL])
            raise RuntimeError
        store.record([CALL])
    assert len(store.recent_calls(9)) == 2


def test_others_see_a_block_only_when_it_ends(path: Path) -> None:
    with Store.open(path) as store, Store.open(path) as other:
        with store.atomic():
            store.begin_session(SESSION)
            store.record([CALL])
            assert (other.sessions(), other.recent_calls(9)) == ([], [])
        assert (len(other.sessions()), len(other.recent_calls(9))) == (1, 1)


def test_a_locked_file_is_a_temporary_error_and_the_batch_can_be_repeated(path: Path) -> None:
    with Store.open(path, busy_ms=1) as store, Store.open(path) as other:
        with other.atomic(), pytest.raises(StorageError) as caught:
            store.record([CALL], [replace(MISS, call=1)])
        with other.atomic(), pytest.raises(StorageError):
            store.record([CALL])
        assert caught.value.temporary
        assert (
            str(caught.value) == f"{path}: locked by another process for more than 1 ms; nothing was written, try again"
        )
        store.record([CALL], [replace(MISS, call=1)])
        assert (len(other.recent_calls(9)), other.misses_since(0)) == (1, [replace(MISS, id=1, call=1)])


def test_halves_of_surrogate_pairs_lose_no_record(store: Store) -> None:
    """JSON may hold them and UTF-8 cannot; a client that writes them must not be able to keep itself off the record."""
    odd, kept = ToolId("a\ud800"), ToolId("a?")
    store.record([replace(CALL, tool=odd)])
    store.record(
        [CALL, replace(CALL, tool=odd)], [replace(MISS, call=2, tool=odd, history=(odd,), parts={"\udc00": 1.0})]
    )
    store.begin_session(replace(SESSION, key="s9", client="\ud83d"))
    assert [call.tool for call in store.recent_calls(9)] == [kept, CALL.tool, kept]
    assert store.misses_since(0) == [replace(MISS, id=1, call=3, tool=kept, history=(kept,), parts={"?": 1.0})]
    found = store.session("s9")
    assert found is not None
    assert found.client == "?"


WRITES: dict[str, Callable[[Store], object]] = {
    "record one": lambda store: store.record([CALL]),
    "record many": lambda store: store.record([CALL, CALL], [replace(MISS, call=2), MISS]),
    "begin_session": lambda store: store.begin_session(replace(SESSION, key="s9")),
    "end_session": lambda store: store.end_session("s1", 50.0),
    "add_exposure": lambda store: store.add_exposure(replace(EXPOSURE, tools=(ToolId("x"),))),
    "add_discovery": lambda store: store.add_discovery(DISCOVERY),
    "add_client_relist": lambda store: store.add_client_relist("c", "1", "legacy", 1, 1, 5.0, at=1.0),
    "save_upstream": lambda store: store.save_upstream(UPSTREAM, [tool("b", "new", tokens=3), tool("c")]),
    "set_tokens": lambda store: store.set_tokens({"hash of a": 8}),
    "save_exposed_names": lambda store: store.save_exposed_names({ToolId("n"): ("git", "n")}),
    "save_working_set": lambda store: store.save_working_set(WorkingSet("p", 1, (), b"[]", 1.0)),
    "save_state": lambda store: store.save_state(STATE),
    "clear_states": lambda store: store.clear_states(78),
}


def begun(store: Store) -> None:
    store.begin_session(SESSION)
    store.record([CALL])
    store.save_upstream(UPSTREAM, [tool("a"), tool("b")])
    store.save_state(replace(STATE, pid=78))


def content(connection: sqlite3.Connection) -> list[str]:
    # When the migrations ran is all that differs between two files.
    return [line for line in connection.iterdump() if not line.startswith('INSERT INTO "migrations"')]


class Failing(sqlite3.Connection):
    """Fails once, at the n-th statement or row of many from now on; 0 for never."""

    fails_in = 0

    def __del__(self) -> None:
        # Tests let go of their databases in memory; Python 3.13 warns of those not closed.
        self.close()

    def step(self) -> None:
        self.fails_in -= 1
        if self.fails_in == 0:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self.step()
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
        return super().executemany(sql, (row for row in rows if not self.step()))


def connect() -> Failing:
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=Failing)
    migrate(connection)
    begun(Store(connection, ":memory:"))
    return connection


def written(write: str) -> list[str]:
    """The whole file after a write that nothing troubled."""
    connection = connect()
    WRITES[write](Store(connection, ":memory:"))
    found = content(connection)
    connection.close()
    return found


@pytest.mark.parametrize("write", WRITES)
def test_whichever_statement_of_a_write_fails_nothing_is_left_and_repeating_it_works(write: str) -> None:
    connection = connect()
    store = Store(connection, ":memory:")
    before = content(connection)
    for step in count(1):
        connection.fails_in = step
        try:
            WRITES[write](store)
        except StorageError as error:
            assert error.temporary
            assert not connection.in_transaction
            assert content(connection) == before
        else:
            break
    assert step > 1
    connection.fails_in = 0
    assert content(connection) == written(write)
    connection.close()


@pytest.mark.parametrize("write", WRITES)
def test_whichever_instruction_of_a_write_is_the_last_the_write_is_whole_or_not_there(write: str) -> None:
    before, after = (content(connect()), written(write))
    for step in count(1):
        connection = connect()
        steps = count(1)
        # SQLite asks before every instruction of its machine whether to go on, and once more after the commit.
        connection.set_progress_handler(lambda: int(next(steps) == step), 1)  # noqa: B023  # used within this turn
        try:
            WRITES[write](Store(connection, ":memory:"))
        except StorageError as error:
            assert error.temporary
            assert not connection.in_transaction
        else:
            break
        finally:
            connection.set_progress_handler(None, 0)
            found = content(connection)
            connection.close()
        assert found in (before, after)
    assert step > 5


def test_a_full_disk_is_a_temporary_error_and_nothing_is_half_written(path: Path) -> None:
    Store.open(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    store = Store(connection, path)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    batch = [CALL] * 400
    for room in count():
        connection.execute(f"PRAGMA max_page_count = {pages + room}")
        try:
            store.record(batch, [MISS])
        except StorageError as error:
            assert str(error) == f"{path}: disk full; nothing was written, free some space"
            assert error.temporary
        else:
            break
        assert (store.recent_calls(1), store.misses_since(0)) == ([], [])
    assert room > 5
    assert (len(store.recent_calls(1000)), len(store.misses_since(0))) == (400, 1)
    store.close()


def test_a_rollback_that_failed_is_made_up_for_before_the_next_write(path: Path) -> None:
    Store.open(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("DELETE FROM migrations")
    with Store(connection, path) as store:
        store.record([CALL])
    counts = rows(path, "SELECT count(*) FROM calls UNION ALL SELECT count(*) FROM migrations")
    assert counts == [(1,), (len(MIGRATIONS),)]


# Killed, and shared


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


RECORDER = """
import sys, pathlib
from foretool.storage.records import Call, Miss, ToolId
from foretool.storage.store import Store
call = Call("s1", 11.0, ToolId("git__log"), "git", "name", False, "ok", 1.5, True, "x" * 300, 0)
miss = Miss("s1", 1.0, "a", "call", "budget", 3, 9, "", (), 0, 0, "", "called", 1, 10, call=2)
store = Store.open(pathlib.Path(sys.argv[1]), busy_ms=5000)
written = 0
while True:
    store.record([call])
    store.record([call, call], [miss])
    written += 3
    print(written, flush=True)
"""


def test_a_killed_process_has_lost_no_call_that_was_committed(path: Path) -> None:
    Store.open(path).close()
    command = [sys.executable, "-c", RECORDER, str(path)]
    recorders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for recorder in recorders:
        assert recorder.stdout is not None
        for _ in range(300):
            assert recorder.stdout.readline()
        recorder.send_signal(signal.SIGKILL)
    printed = 0
    for recorder in recorders:
        lines = recorder.communicate()[0].split("\n")
        # The last line may have been cut short by the kill.
        printed += int(lines[-2]) if len(lines) > 1 else 900
    calls, misses = rows(path, "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM misses)")[0]
    assert printed <= calls <= printed + 6
    # A batch is whole: two of three calls, and the miss that the second revealed.
    assert misses == rows(path, "SELECT count(*) FROM misses JOIN calls ON calls.id = misses.call")[0][0]
    assert calls - 3 * misses in (0, 1, 2)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_checkpoint_in_a_thread_moves_the_log_while_calls_are_recorded(path: Path) -> None:
    with Store.open(path) as store:
        assert not store.is_checkpoint_due
        for _ in range(250):
            store.record([CALL])
        assert store.is_checkpoint_due
        before = path.stat().st_size
        left: list[int] = []
        thread = threading.Thread(target=lambda: left.append(store.checkpoint()))
        thread.start()
        store.record([CALL])
        thread.join()
        assert not store.is_checkpoint_due
        assert store.checkpoint() == 0
        assert left[0] < 20
        assert path.stat().st_size > before
    assert rows(path, "SELECT count(*) FROM calls") == [(251,)]


def test_the_log_stays_bounded_without_anyone_asking_for_a_checkpoint(path: Path) -> None:
    with Store.open(path) as store:
        for _ in range(12_000):
            store.record([CALL])
        log = path.with_name(path.name + "-wal").stat().st_size
    assert log < 20 * 2**20


def test_a_checkpoint_in_memory_is_nothing(store: Store) -> None:
    assert store.checkpoint() == 0


# Upkeep


def test_statistics_count_what_there_is(store: Store) -> None:
    begun(store)
    store.record([CALL], [MISS])
    store.add_exposure(EXPOSURE)
    store.add_discovery(DISCOVERY)
    size = store.statistics().file_bytes
    assert store.statistics() == Statistics(1, 2, 2, 1, 1, 1, 2, 1, 1, size)
    assert size % os.sysconf("SC_PAGE_SIZE") == 0


def test_pruning_takes_the_old_log_and_keeps_misses_with_what_they_point_at(store: Store) -> None:
    for key, started_at in [("old", 1.0), ("missed", 2.0), ("s1", 10.0)]:
        store.begin_session(replace(SESSION, key=key, started_at=started_at))
    for at in (1.0, 2.0, 3.0, 100.0):
        store.add_exposure(replace(EXPOSURE, session="s1", at=at, tools=(ToolId(f"at {at}"),)))
        store.add_discovery(replace(DISCOVERY, session="s1", at=at))
    store.record(
        [replace(CALL, session="old", at=1.0), replace(CALL, session="missed", at=2.0), replace(CALL, at=100.0)],
        [replace(MISS, at=2.0, session="missed", call=2, exposure=2, discovery=3)],
    )
    # One call; exposures 1 and 3 with their lists; discoveries 1 and 2; the session that has nothing left.
    assert store.prune(50.0) == 1 + 2 + 2 + 2 + 1
    assert [call.id for call in store.recent_calls(9)] == [3, 2]
    assert [exposure.id for exposure in store.session_exposures("s1")] == [2, 4]
    assert [discovery.id for discovery in store.recent_discoveries(9)] == [4, 3]
    assert [session.key for session in store.sessions()] == ["s1", "missed"]
    assert len(store.misses_since(0)) == 1
    assert store.prune(50.0) == 0


def test_ids_are_not_given_twice_after_pruning_everything(store: Store) -> None:
    store.record([CALL, CALL])
    store.prune(1e12)
    store.record([CALL])
    assert [call.id for call in store.recent_calls(9)] == [3, 2]


def test_rows_come_one_by_one_or_say_what_is_wrong() -> None:
    with Store.open(":memory:") as store:
        rows = store.read_each("SELECT value FROM json_each('[1, 2, 3]')")
        assert next(rows) == (1,)
        assert list(rows) == [(2,), (3,)]
        with pytest.raises(StorageError, match="no such table: gone"):
            list(store.read_each("SELECT * FROM gone"))
