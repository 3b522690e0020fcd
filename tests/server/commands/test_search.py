"""`foretool search`: the answer of `discover_tools`, explained."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from command_fakes import echo, fill, write_config
from requirements import requirement
from tiny_model import write_model

from foretool.retrieval.encoders import resolve_weights
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Call, Discovery, Match, ToolId


class Terminal(io.StringIO):
    """An output on which a person reads."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path, profiles={"sums": {"servers": ["calc"]}})
    fill(path).close()
    return path


def test_the_best_match_comes_first_with_its_parts_and_reasons(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "weather", "forecast", "for", "a", "city", "--json", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    best = found["matches"][0]
    assert (best["tool"], best["rank"], best["schema"]) == ("sky__forecast", 1, "whole")
    assert best["score"] == pytest.approx(sum(best["parts"].values()))
    assert "weather" in best["why"]
    assert found["task"] == "weather forecast for a city"
    head = (
        f"confidence: {found['confidence']}. Nothing has run yet: call the tool that fits now, and answer only from its"
    )
    assert found["answer"].startswith(f"{head} result.\n1. sky__forecast")


def test_new_tools_are_embedded_by_the_first_search_and_their_vectors_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_model(tmp_path / "tiny"))
    path = write_config(tmp_path, encoder=model)
    fill(path).close()
    assert run(["search", "weather", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["matches"]
    with open_existing_store(load(path).storage) as store:
        assert len(store.vectors.known(resolve_weights(model)[0].key)) == 3


def test_it_prints_a_table_or_the_answer_itself(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "weather", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "sky__forecast" in out and "lexical +" not in out and "\nconfidence " in out
    assert run(["search", "weather", "--why", "--config", str(path)]) == 0
    assert "lexical +" in capsys.readouterr().out
    assert run(["search", "weather", "--text", "--config", str(path)]) == 0
    assert capsys.readouterr().out.startswith("confidence: ")


@requirement("gate:use")
def test_it_is_as_sure_as_a_proxy_by_what_followed_earlier_searches(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def level() -> str:
        assert run(["search", "weather forecast for a city", "--json", "--config", str(path)]) == 0
        return str(json.loads(capsys.readouterr().out)["confidence"])

    assert level() == "high"
    with open_existing_store(load(path).storage) as store, store.atomic():
        for at in range(50):
            matches = (Match(ToolId(f"old__t{at}"), 1, 1.0),)
            told = Discovery(
                "s",
                float(at),
                "t",
                (),
                None,
                "high",
                matches,
                1,
                1.0,
                handle=str(at),
                probability=0.95,
                first_probability=0.9,
            )
            store.discoveries.add(told)
            missed = Call("s", at + 0.5, ToolId("old__other"), "u", "bridge", True, "ok", 1.0, True, "", handle=str(at))
            store.calls.record([missed])
    assert level() != "high"


def test_a_skill_of_the_user_that_fits_stands_beside_the_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "skills" / "cut-release" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: cut-release\ndescription: Cut a release of a repository.\n---\nAsk echo first.\n")
    path = write_config(tmp_path, {"one": echo()}, skills=[str(tmp_path / "skills")])
    assert run(["search", "cut", "a", "release", "--config", str(path)]) == 0
    assert "skill cut-release: Cut a release of a repository. (" in " ".join(capsys.readouterr().out.split())
    assert run(["search", "cut", "a", "release", "--json", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["file"] for each in found["skills"]] == [str(file)]
    assert "skill cut-release (yours)" in found["answer"]
    assert run(["search", "weather of tomorrow", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["skills"] == []


def test_an_empty_catalogue_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "weather", "--config", str(write_config(tmp_path))]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "listing the tools of 2 servers first: calc, sky",
        "foretool: no tools are known yet; run `foretool doctor` to see why",
    ]


def test_instructions_that_apply_are_in_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.md").write_text("Ask for the city before any forecast of the weather.")
    path = write_config(tmp_path, instructions=["*.md"])
    fill(path).close()
    assert run(["search", "--text", "--config", str(path), "weather forecast"]) == 0
    assert "instructions (file rules.md): Ask for the city" in capsys.readouterr().out


@requirement("start:kept")
def test_servers_that_were_never_listed_are_listed_first_and_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"one": echo(), "bad": echo("--die", "no token"), "other": echo()}
    profiles = {"p": {"servers": ["one", "bad"]}}
    path = write_config(tmp_path, servers, profiles=profiles)
    assert run(["search", "echo", "--profile", "p", "--json", "--config", str(path)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["matches"][0]["tool"] == "one__echo"
    assert said.err.splitlines() == [
        "listing the tools of 2 servers first: one, bad",
        "no tools of bad; `foretool list` says why",
    ]
    assert run(["search", "echo", "--profile", "p", "--json", "--config", str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == ["no tools of bad; `foretool list` says why"]


def test_where_the_encoder_cannot_be_used_it_is_said_beside_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for encoder, said in (("org/not-there", "words alone rank; `foretool status` says why\n"), ("none", "")):
        path = write_config(tmp_path, encoder=encoder)
        fill(path).close()
        assert run(["search", "weather forecast", "--json", "--config", str(path)]) == 0
        out, error = capsys.readouterr()
        assert error == said and "sky__forecast" in out


def test_at_80_columns_each_match_says_first_what_it_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert run(["search", "weather", "--config", str(path)]) == 0
    terminal.seek(0)
    terminal.truncate()
    assert run(["search", "weather", "--why", "--config", str(path)]) == 0
    name, *lines = re.sub("\x1b\\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert name.startswith("1  sky__forecast")
    assert [line.split(":")[0].strip() for line in lines[:2]] == ["description", "why"]
