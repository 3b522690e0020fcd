"""`foretool doctor` on a screen; what it finds is in test_doctor.py."""

import io
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_fakes import echo, write_config

from foretool.retrieval.encoders import weights
from foretool.server import probing
from foretool.server.commands.group import run


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"one": echo()})
    before = logging.getLogger("foretool").level
    assert run(["doctor", "--config", str(path)]) == 0
    out, error = capsys.readouterr()
    assert out.endswith("No problems, 0 warnings.\n") and error == ""
    assert logging.getLogger("foretool").level == before


def test_the_way_out_stands_below_its_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"one": echo("--silent")})
    assert run(["doctor", "--timeout", "0.5", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\n  one: no answer to initialize within 0.5 s [FT302]\n    -> give it more time" in out
    assert out.startswith("The server does not work: there are no tools")


def test_one_server_is_checked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {"one": echo(), "bad": echo("--silent"), "gone": {"command": "no-such-program"}, "off": echo()}
    servers["off"]["disabled"] = True
    path = str(write_config(tmp_path, servers, pin=["nobody__*"]))
    assert run(["doctor", "one", "--config", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 server, 2 tools, ") and "bad" not in out and "gone" not in out and "nobody" not in out
    assert run(["doctor", "bad", "gone", "--timeout", "0.5", "--config", path]) == 1
    out = capsys.readouterr().out
    assert "bad: no answer to initialize" in out and "no-such-program is not on PATH; needed by gone" in out
    for names, said in (
        (["onne"], "no server is called 'onne'; did you mean \"one\"?"),
        (["off"], "off is disabled: foretool enable off"),
        (["one", "--undo"], "--explain and --undo go without a SERVER"),
    ):
        assert run(["doctor", *names, "--config", path]) == (1 if names == ["onne"] else 2)
        assert said in capsys.readouterr().err


def test_one_server_is_not_well_where_nothing_can_be_kept_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"one": echo(), "bad": {"command": "no-such-program"}})
    (tmp_path / "foretool.sqlite3").write_text("no database " * 100)
    assert run(["doctor", "one", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "[FT501]" in out and "\n1 problem, 0 warnings." in out and "bad" not in out


def test_what_has_the_same_cure_is_said_with_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {name: echo("--silent", "--listed", name) for name in ("one", "two")})
    assert run(["doctor", "--timeout", "0.5", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "one: no answer" in out and "two: no answer" in out and out.count("-> give it more time") == 1
    assert "foretool doctor one two --timeout 120" in " ".join(out.split())


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_timeout_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--timeout", seconds]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "kept", "prepares"),
    [("n\n", [], False), ("y\n", [], True), ("", ["modules.json"], True), (None, [], True)],
)
def test_a_person_is_asked_before_an_encoder_is_downloaded(
    typed: str | None,
    kept: list[str],
    prepares: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def try_to_load_from_cache(model: str, file: str) -> str | None:
        return f"/cache/{model}/{file}" if file in kept else None

    hub = SimpleNamespace(try_to_load_from_cache=try_to_load_from_cache)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr("sys.stdin", io.StringIO() if typed is None else Terminal(typed))
    prepared: list[str] = []
    monkeypatch.setattr(probing, "prepare_meaning", lambda config, tell: prepared.append(config.settings.encoder) or "")
    path = write_config(tmp_path, {"one": echo()}, encoder="some/model")
    run(["doctor", "--config", str(path)])
    assert bool(prepared) is prepares
    error = capsys.readouterr().err
    assert ("encoder some/model is not on this machine" in error) is (not kept)
    assert ("Download it now?" in error) is (typed is not None and not kept)
    assert ('set "encoder" to "auto"' in error) is (not prepares)


def test_what_to_do_about_a_variable_names_the_file_and_works_for_a_desktop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    path = write_config(tmp_path, {"one": echo(), "slack": {"command": "x", "env": {"T": "${NO_SUCH_TOKEN}"}}})
    assert run(["doctor", "--config", str(path)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "variable NO_SUCH_TOKEN is not set: write its value there, or set it where your client starts" in out
    advice = out.partition("-> correct that line of ")[2].partition("; until then this server alone is left out")[0]
    assert advice.replace(" ", "") == str(path)
    assert run(["doctor", "--explain", "FT108"]) == 0
    assert "starts from a desktop" in " ".join(capsys.readouterr().out.split())
