"""What the registry names is shown and asked about before it is run."""

from __future__ import annotations

from typing import Any

import click
import pytest
from registry_fakes import item, npm, registry

from foretool.server.commands import output, registry_offers
from foretool.server.setup.mcp_registry import RegistryError

NEEDS = [
    {"name": "KEY", "isRequired": True, "isSecret": True},
    {"name": "UNITS", "isRequired": True, "choices": ["metric", "imperial"]},
]


class _Terminal:
    def isatty(self) -> bool:
        return True


def answering(monkeypatch: pytest.MonkeyPatch, *, says_yes: bool, values: dict[str, str]) -> list[tuple[str, bool]]:
    """Answer the questions, and return which were asked and whether the answer was hidden."""
    asked: list[tuple[str, bool]] = []

    def prompt(text: str, *, hide_input: bool = False, **more: Any) -> str:
        asked.append((text.partition(" ")[0], hide_input))
        return values.get(asked[-1][0], "")

    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr(output, "agrees", lambda *given, **more: says_yes)
    monkeypatch.setattr(click, "prompt", prompt)
    return asked


def test_values_are_asked_for_and_an_empty_one_stays_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answering(monkeypatch, says_yes=True, values={"KEY": "s3cret"})
    monkeypatch.setenv("UNITS", "x")
    with registry(item(packages=[npm(environmentVariables=NEEDS)])) as answer:
        server = registry_offers.offer_server(
            answer.url, "io.github.ann/weather", "", None, agreed=False, as_json=False
        )
    assert server.entry["env"] == {"KEY": "s3cret", "UNITS": "${UNITS}"}
    assert asked == [("KEY", True), ("UNITS", False)]
    out = capsys.readouterr().out
    assert "One of: metric, imperial." in out and "It is set in your shell" in out and "s3cret" not in out


def test_a_no_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, says_yes=False, values={})
    with registry(item(packages=[npm()])) as answer, pytest.raises(click.Abort):
        registry_offers.offer_server(answer.url, "io.github.ann/weather", "", None, agreed=False, as_json=False)


def test_the_wanted_kind_is_used_and_the_others_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    remote = {"type": "streamable-http", "url": "https://h.example/mcp"}
    with registry(item(packages=[npm()], remotes=[remote])) as answer:
        server = registry_offers.offer_server(
            answer.url, "io.github.ann/weather", "", "remote", agreed=True, as_json=False
        )
        assert server.entry == {"url": "https://h.example/mcp"}
        with pytest.raises(RegistryError, match="it offers: npm, remote"):
            registry_offers.offer_server(answer.url, "io.github.ann/weather", "", "pypi", agreed=True, as_json=True)
    assert "It also comes as npm: --use npm" in capsys.readouterr().out
