"""`foretool tools`: the catalogue with its cost, its lists and its use."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_fakes import CALC, definition, fill, write_config
from held_fakes import hold_changes
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, UpstreamRecord
from foretool.storage.steps import finish

UNMARKED = {"risk": "write", "risk_from": "none", "bridge": "call_tool_write", "denied": ""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    servers = {"calc": {"command": "calc", "pin": ["add"]}, "sky": {"command": "sky"}, "new": {"command": "new"}}
    path = write_config(tmp_path, servers, profiles={"night": {"servers": ["sky"], "policy": "full"}})
    fill(path).close()
    return path


def told(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["tools", "--config", str(path), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def names(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [row["name"] for row in told(path, capsys, *arguments)["tools"]]


def test_every_tool_with_its_cost_its_lists_and_its_use(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(path, capsys)
    assert found["tools"][:2] == [
        {
            "name": "calc__add", "upstream": "calc", "tokens": 40, "counted": True, "pinned": True,
            "listed": [""], "named": [], "calls": 0, "misses": 0, "last_used": 0.0, **UNMARKED, "findings": [],
        },
        {
            "name": "sky__forecast", "upstream": "sky", "tokens": 40, "counted": True, "pinned": False,
            "listed": ["", "night"], "named": [], "calls": 1, "misses": 1, "last_used": 103.0, **UNMARKED,
            "findings": [],
        },
    ]  # fmt: skip
    assert (found["catalog_tools"], found["catalog_tokens"]) == (3, 120)
    assert found["unlisted_servers"] == ["new"]
    lists = [(each["profile"], each["policy"], each["tools"]) for each in found["lists"]]
    assert lists == [("", "auto", 5), ("night", "full", 5)]


def test_it_prints_a_table_and_the_totals(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tools", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "calc__add (pinned)" in out and "catalog: 3 tools, 120 tokens" in out and "~" not in out
    assert "next list of profile night: 5 tools" in out and "not known yet: new" in out
    assert re.search(r"\nnext list: 5 tools, [\d,]+ tokens, \d+% of the catalog \(budget 2,000, policy auto\)\n", out)


def test_sums_of_tokens_that_are_estimated_say_so_as_each_of_them_does(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load(path)
    with open_store(config.storage) as store:
        record = UpstreamRecord("calc", fingerprint(config.servers["calc"]), "legacy", "", "", '{"tools": {}}', 1.0)
        tool = Tool(CALC, "calc", "add", definition("add", "Adds two numbers."), "other")
        finish(store.catalog.save_upstream(record, [tool]))
    assert run(["tools", "forecast", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\ncatalog: 3 tools, ~[\d,]+ tokens\nnext list: 5 tools, ~[\d,]+ tokens", out)
    assert "~: an estimate;" in out


def test_a_tool_that_a_list_only_names_is_said_to_be_in_it_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky"}}, list_fill=True)
    fill(path).close()
    assert {(*row["listed"], *row["named"]) for row in told(path, capsys)["tools"]} == {("",)}
    assert run(["tools", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\nnext list: 3 tools and the names of 3, [\d,]+ tokens", out) and out.count("all by name") == 3


def test_a_server_with_tools_of_each_person_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"token_endpoint": "https://login.example/token", "client_id": "foretool", "client_secret": "s3cret"}
    access = {"issuer": "https://login.example", "resource": "https://tools.example/mcp",
              "grants": [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]}  # fmt: skip
    servers = {"calc": {"command": "calc"}, "mail": {"url": "https://mail.example/mcp", "per_user": entry}}
    path = write_config(tmp_path, servers, access=access)
    found = told(path, capsys)
    assert (found["personal_servers"], found["unlisted_servers"]) == (["mail"], ["calc"])
    assert run(["tools", "--config", str(path), "--server", "mail"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "for each person: mail; who is signed in has tools of their own there" in out
    assert "not known yet: calc;" in out


@requirement("trust:policy:risk")
def test_each_tool_has_its_risk_who_says_so_and_what_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"calc": {"command": "calc", "deny": ["add"]}, "sky": {"command": "sky", "risk": {"moon": "read"}}}
    path = write_config(tmp_path, servers)
    fill(path).close()
    told_of = {row["name"]: (row["risk"], row["risk_from"], row["bridge"]) for row in told(path, capsys)["tools"]}
    assert told_of == {
        "calc__add": ("write", "none", ""),
        "sky__forecast": ("write", "none", "call_tool_write"),
        "sky__moon": ("read", "config", "call_tool"),
    }
    assert run(["tools", "--config", str(path)]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if "__" in line]
    assert rows == [["calc__add", "denied"], ["sky__forecast", "unmarked"], ["sky__moon", "read"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["FORE"], ["sky__forecast"]),
        (["sky__*"], ["sky__forecast", "sky__moon"]),
        (["--upstream", "calc"], ["calc__add"]),
        (["--unused"], ["calc__add", "sky__moon"]),
        (["--sort", "calls"], ["sky__forecast", "calc__add", "sky__moon"]),
        (["--sort", "used"], ["sky__forecast", "calc__add", "sky__moon"]),
        (["fore", "--upstream", "calc"], []),
    ],
)
def test_tools_are_chosen_and_ordered(
    arguments: list[str], expected: list[str], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(path, capsys, *arguments) == expected


def test_unused_tools_are_summed_up_with_the_way_to_be_rid_of_them(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tools", "--unused", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "never called: 2 tools, 80 tokens" in out and "  sky: 1, 40 tokens" in out and '"exclude"' in out


def test_a_schema_is_the_definition_as_clients_see_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tools", "--schema", "forecast", "--config", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["description"]) == ("sky__forecast", "Forecast of the weather for a city.")


def test_an_unknown_name_is_status_1_with_those_that_may_be_meant(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tools", "--schema", "sky__forcast", "--config", str(path)]) == 1
    assert capsys.readouterr().err.startswith(
        "foretool: --schema: no tool is called 'sky__forcast' (unknown); did you mean sky__"
    )


def test_before_the_first_run_it_says_what_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tools", "--config", str(write_config(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "No tools are known yet." in out and "not known yet: calc, sky" in out


def test_a_server_whose_entry_cannot_be_used_is_said_to_lack_its_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"command": "shop", "env": {"KEY": "${NEVER_SET_HERE}"}}
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "shop": broken})
    assert run(["tools", "--server", "shop", "--config", str(path)]) == 0
    assert "not known, because the servers do not work: shop; `foretool list` says why" in capsys.readouterr().out


def test_tools_that_wait_for_the_user_are_counted_and_named_as_such(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server was upgraded: 13 of its 14 tools were missing without a word, and asked for by name unknown."""
    hold_changes(load(path))
    assert told(path, capsys)["waiting"] == {"calc": 1}
    assert told(path, capsys, "--server", "sky")["waiting"] == {}
    assert run(["tools", "calc", "--config", str(path)]) == 0
    assert "not served, because they wait for your approval: 1 of calc; `foretool review`" in capsys.readouterr().out
    for arguments in (["calc__sub"], ["calc__s*"], ["--schema", "calc__sub"], ["--needs", "calc__sub"]):
        assert run(["tools", *arguments, "--config", str(path)]) == 1
        said = f"{arguments[-1]!r} of server 'calc' waits for your approval (denied); foretool review calc shows it"
        assert said in capsys.readouterr().err
