"""`foretool forget`: counts, asks, deletes for good, and says what remains."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from command_fakes import echo, write_config
from http_fakes import unused_port
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, DISCOVERY, MISS, SESSION

from foretool.fleet.people import grants as module
from foretool.fleet.people.grants import Grant, Grants
from foretool.fleet.people.issuer import principal_of
from foretool.retrieval.corpus import digest_query
from foretool.server.commands.forget import _NOUNS
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import AuditEntry, AuditFilter, Prompt, ToolId
from foretool.storage.sql import forgetting

FALCON = "release project falcon"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_config(tmp_path, {"one": echo("--name", "x")})
    now = time.time()
    with open_store(load(path).storage) as store:
        store.sessions.begin(replace(SESSION, started_at=now))
        store.discoveries.add(replace(DISCOVERY, at=now, task=FALCON))
        store.discoveries.add(replace(DISCOVERY, at=now - 90_000, task="feed the cat"))
        store.tasks.add_prompt(Prompt(now - 90_000, f"please {FALCON}"))
        store.calls.record([replace(CALL, at=now, tool=ToolId("one__add"), arguments='{"falcon":"string"}')])
    return path


def forget(config: Path, *options: str) -> int:
    return run(["forget", *options, "--config", str(config)])


def tasks(config: Path) -> list[str]:
    with open_store(load(config).storage) as store:
        return store.tasks.latest(99)


@requirement("trust:data:forget")
def test_what_was_counted_is_deleted_and_leaves_no_byte(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--text", "project falcon", "--dry-run") == 0
    counted = capsys.readouterr().out
    assert "searches for tools" in counted and "prompts" in counted and "Nothing was deleted." in counted
    assert len(tasks(config)) == 3
    assert forget(config, "--text", "project FALCON", "-y", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"counts": {"discoveries": 1, "prompts": 1}, "is_done": True, "remains": []}
    assert tasks(config) == ["feed the cat"]
    for each in load(config).storage.parent.glob("foretool.sqlite3*"):
        assert b"project falcon" not in each.read_bytes()


@requirement("trust:data:forget")
def test_misses_of_other_tools_that_go_with_a_server_are_told_apart(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    own = replace(MISS, at=now, tool=ToolId("one__add"), history=())
    others = [
        replace(MISS, at=now, tool=ToolId("two__read"), history=(ToolId("one__add"),)),
        replace(MISS, at=now, tool=ToolId(""), history=(ToolId("one__add"),)),
        replace(MISS, at=now, tool=ToolId("two__read"), history=()),
    ]
    with open_store(load(config).storage) as store:
        names = {ToolId(f"{server}__{name}"): (server, name) for server, name in (("one", "add"), ("two", "read"))}
        store.catalog.save_exposed_names(names)
        store.calls.record([], [own, *others])
    for options in (("--dry-run",), ("--yes",)):
        assert forget(config, "--server", "one", *options) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "1 misses 2 misses of other tools, after calls of these" in said
    with open_store(load(config).storage) as store:
        assert [each.tool for each in store.calls.misses()] == ["two__read"]


@requirement("trust:data:forget")
def test_a_dry_run_counts_what_is_then_deleted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(load(config).storage) as store:
        store.vectors.save("encoder", {digest_query(FALCON): b"1234", b"of another text": b"1234"})
    assert forget(config, "--text", "project falcon", "--dry-run", "--json") == 0
    counted = json.loads(capsys.readouterr().out)["counts"]
    assert forget(config, "--text", "project falcon", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"] == counted == {"discoveries": 1, "prompts": 1, "vectors": 1}


@requirement("trust:data:forget")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--since", "1h"], ["feed the cat", f"please {FALCON}"]),
        (["--before", "1d"], [FALCON]),
        (["--before", "2001-01-31"], [FALCON, "feed the cat", f"please {FALCON}"]),
        (["--session", SESSION.key[:6]], [f"please {FALCON}"]),
        (["--since", "1h", "--text", "cat"], [FALCON, "feed the cat", f"please {FALCON}"]),
        (["--all"], []),
    ],
)
def test_conditions_narrow_what_is_meant(options: list[str], left: list[str], config: Path) -> None:
    assert forget(config, *options, "--yes") == 0
    assert sorted(tasks(config)) == sorted(left)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say what to forget"),
        (["--all", "--text", "x"], "--all deletes everything"),
        (["--text", ""], "found an empty text"),
        (["--text", " "], "found an empty text"),
        (
            ["--since", "soon"],
            "--since': expected a time like 7d, 12h or 30min, or a date like 2026-01-31, found 'soon'",
        ),
        (["--text", "falcon"], "add --yes, or --dry-run"),
        (["--text", "falcon", "--json"], "add --yes, or --dry-run"),
    ],
)
def test_what_is_unclear_is_refused_and_nothing_is_deleted(
    options: list[str], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forget(config, *options) == 2
    assert said in capsys.readouterr().err
    assert len(tasks(config)) == 3


def test_nothing_that_fits_is_no_error(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--text", "no such words", "--yes") == 0
    assert "Nothing on record fits" in capsys.readouterr().out
    load(config).storage.unlink()
    assert forget(config, "--all", "--yes") == 1
    assert "does not exist" in capsys.readouterr().err


def test_traces_are_removed_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(config, "--compact") == 0
    assert "no trace" in capsys.readouterr().out
    assert len(tasks(config)) == 3


@pytest.fixture
def office(tmp_path: Path) -> Iterator[tuple[Path, list[str], str]]:
    """A config with a server that people connect, and the bodies that its authorization server got."""
    asked: list[str] = []

    class Revocation(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Revocation) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_address[1]}"
        key = base64.b64encode(bytes(32)).decode()
        entry = {"token_endpoint": f"{at}/token", "authorization_endpoint": f"{at}/authorize",
                 "revocation_endpoint": f"{at}/revoke", "client_id": "foretool", "client_secret": "s3cret"}  # fmt: skip
        access = {"issuer": "https://login.example", "resource": "https://tools.example/mcp",
                  "grants": [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]}  # fmt: skip
        yield write_config(
            tmp_path, {"mail": {"url": f"{at}/mcp", "per_user": entry}}, access=access, seal_keys=[key]
        ), asked, at  # fmt: skip
        server.shutdown()


def connect(config: Path, person: str) -> None:
    loaded = load(config)
    with open_store(loaded.storage) as store:
        grants = Grants(lambda: store, lambda: loaded.settings.seal_keys, "", lambda: loaded.servers)
        grant = Grant(f"access-of-{person}", time.time() + 60, f"refresh-of-{person}")
        store.grants.save("mail", person, module._seal(grants._seals, grant, "grant", "mail", person), 1.0)


@requirement("trust:audit")
def test_forgotten_grants_end_at_the_authorization_server_too(
    office: tuple[Path, list[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    config, asked, _ = office
    connect(config, "ann")
    assert forget(config, "--server", "mail", "--dry-run") == 0 and not asked
    assert "grants of people" in capsys.readouterr().out
    assert forget(config, "--server", "mail", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"counts": {"grants": 1}, "is_done": True, "remains": []}
    assert [parse_qs(each)["token"] for each in asked] == [["refresh-of-ann"], ["access-of-ann"]]
    with open_store(load(config).storage) as store:
        (kept,) = store.audit.find(AuditFilter())
        assert (kept.action, kept.target, kept.outcome, kept.detail) == (
            "connect", "mail", "disconnected", "the grant of ann was forgotten",
        )  # fmt: skip
        assert kept.principal.startswith("user:") and store.grants.load("mail", "ann") is None


def test_grants_whose_authorization_server_is_away_are_forgotten_and_that_is_said_in_one_line(
    office: tuple[Path, list[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    config, asked, at = office
    for person in ("ann", "ben"):
        connect(config, person)
    away = f"http://127.0.0.1:{unused_port()}"
    config.write_text(config.read_text().replace(at, away))
    assert forget(config, "--all", "--yes", "--json") == 0
    (line,) = json.loads(capsys.readouterr().out)["remains"]
    assert line.startswith("what 2 people had allowed at server 'mail' is deleted here") and away in line
    assert "of-ann" not in line and "\n" not in line and not asked
    with open_store(load(config).storage) as store:
        assert store.grants.load("mail", "ann") is None and len(store.audit.find(AuditFilter())) == 2


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A store with what two people did, of whom the audit log knows the name."""
    access = {
        "issuer": "https://login.example.com",
        "resource": "https://tools.example.com/mcp",
        "jwks_url": "https://login.example.com/keys",
        "grants": [{"claim": "sub", "values": ["*"], "profiles": ["default"]}],
    }
    path = write_config(tmp_path, {"one": echo("--name", "x")}, access=access)
    now = time.time()
    with open_store(load(path).storage) as store:
        for subject in ("ann-1", "ann-2"):
            person = principal_of(access["issuer"], subject)
            store.sessions.begin(replace(SESSION, key=subject, started_at=now, transport="http"))
            store.sessions.name_person(subject, person, learns=True, at=now)
            store.calls.record([replace(CALL, at=now, session=subject)])
            store.audit.add([AuditEntry(now, person, "Ann", "c", "", "call", "git__log", "ok", session=subject)])
    return path


@requirement("trust:data:forget-person")
@pytest.mark.parametrize("who", ["ann-1", principal_of("https://login.example.com", "ann-1")])
def test_a_person_is_named_by_subject_or_principal(who: str, team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(team, "--person", who, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "names of people at sessions" in said
    assert forget(team, "--person", who, "--yes", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"] == {"calls": 1, "sessions": 1, "session_people": 1}
    assert any("audit log names this person in 1 entries" in each for each in said["remains"])
    with open_store(load(team).storage) as store:
        assert [each.session for each in store.calls.recent(10)] == ["ann-2"]


@requirement("trust:data:forget-person")
@pytest.mark.parametrize("who", ["Ann", "ann-_", "ann-%", "' OR 1=1 --"])
def test_a_name_or_a_pattern_selects_nobody(who: str, team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forget(team, "--person", who, "--yes") == 1
    said, err = capsys.readouterr()
    assert "nothing was deleted" in said and f"is called {who!r}" in " ".join(err.split())
    # Both have the name, so neither is meant.
    assert said.count("oauth:") == (2 if who == "Ann" else 0)
    with open_store(load(team).storage) as store:
        assert len(store.calls.recent(10)) == 2


def test_every_table_that_is_counted_has_a_noun() -> None:
    assert {*(each.name for each in forgetting._TABLES), *forgetting._WHOLE, "session_people", "misses_of_others"} - {
        "usage_folded",
        "profile_usage",
    } == set(_NOUNS)
