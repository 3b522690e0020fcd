from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.retrieval import main, read_tasks, read_tools


def write(path: Path, *rows: object) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    schema = {"properties": {"repo": {"description": "Owner and name"}}}
    write(
        tmp_path / "tools.jsonl",
        {"server": "github", "name": "create_issue", "description": "Open an issue", "input_schema": schema},
        {"server": "gitlab", "name": "create_issue", "description": "Open an issue", "input_schema": {}},
        {"server": None, "name": "whois", "description": "Look up a domain"},
    )
    write(
        tmp_path / "dev.jsonl.gz",
        {"id": "1", "query": "open an issue on github", "calls": ["github/create_issue"]},
        {"id": "2", "query": "who owns this domain", "calls": ["whois"], "accept": [["whois", "unknown"]]},
        {"id": "3", "query": "no tool has this", "calls": ["unknown"]},
    )
    return tmp_path


def test_queries_without_a_known_tool_are_left_out(folder: Path) -> None:
    tasks = read_tasks(folder / "dev.jsonl", read_tools(folder))
    assert [task.gold for task in tasks] == [(frozenset({"github/create_issue"}),), (frozenset({"whois"}),)]


def test_one_json_object_a_line_per_method(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--json"])
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["set"], each["method"], each["n"]) for each in results] == [
        (folder.name, method, 2) for method in ("bm25", "lexical", "served", "gate")
    ]
    assert all(each["r@1"] == 1.0 and each["r@1_interval"] == [1.0, 1.0] for each in results[:3])


def test_a_table_with_distractors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalogs = folder / "catalogs"
    catalogs.mkdir()
    (catalogs / "web.json").write_text(json.dumps({"server": "web", "tools": [{"name": "fetch"}]}))
    main([str(folder), "--pool", str(catalogs), "--methods", "served", "--limit", "1"])
    assert "served   n=1 " in capsys.readouterr().out


def test_latency_over_a_repeated_catalog(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--latency", "30", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["tools"], result["words_1-25"]["n"]) == (30, 2)


def test_an_unknown_method_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(folder), "--methods", "magic"])
    assert "magic is not known" in capsys.readouterr().err
