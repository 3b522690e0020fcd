"""Which variable a server that failed has missed."""

from __future__ import annotations

import pytest

from foretool.server.upstreams.missing_variables import advise

OURS = {"GITHUB_TOKEN": "x", "HTTPS_PROXY": "x", "NODE_EXTRA_CA_CERTS": "x", "HOME": "/h", "FORETOOL_TOKEN": "x"}


def said(line: str, *given: str) -> str:
    return advise([line], OURS, ("HOME", *given), ["MY_TOKEN"])


@pytest.mark.parametrize(
    "line",
    [
        "Error: GITHUB_TOKEN is not set",
        "missing environment variable `GITHUB_TOKEN`",
        "KeyError: 'GITHUB_TOKEN'",
        "{'path': ['GITHUB_TOKEN'], 'message': 'Required'}",
    ],
)
def test_a_variable_that_is_set_here_and_named_by_the_server_is_the_one(line: str) -> None:
    assert said(line) == (
        'GITHUB_TOKEN is set here but not given to it; if it may have it, add "inherit": ["GITHUB_TOKEN"] to its entry'
    )
    assert said(line, "GITHUB_TOKEN") == ""


@pytest.mark.parametrize(
    "line",
    [
        "SLACK_BOT_TOKEN is not set",
        "SLACK_BOT_TOKEN environment variable is required",
        "Please set SLACK_BOT_TOKEN",
        "Missing required variable: SLACK_BOT_TOKEN",
        "  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'SLACK_BOT_TOKEN'",
        "680, in __getitem__\n    raise KeyError(key) from None\nKeyError: 'SLACK_BOT_TOKEN'",
    ],
)
def test_a_variable_that_is_set_nowhere_is_named_with_both_ways(line: str) -> None:
    assert said(line) == (
        'SLACK_BOT_TOKEN is not set here; set it where foretool starts and add "inherit": ["SLACK_BOT_TOKEN"] to its'
        " entry"
    )


def test_an_empty_variable_is_not_set() -> None:
    found = advise(["SLACK_BOT_TOKEN is not set"], {"SLACK_BOT_TOKEN": ""}, [])
    assert found.startswith("SLACK_BOT_TOKEN is not set here")


@pytest.mark.parametrize(
    "line",
    [
        "npm error code ENOTFOUND",
        "error sending request: invalid peer certificate: UnknownIssuer",
        "Could not connect to proxy",
    ],
)
def test_trouble_with_the_network_names_the_settings_of_it_that_are_set_here(line: str) -> None:
    assert said(line).endswith('add "inherit": ["HTTPS_PROXY", "NODE_EXTRA_CA_CERTS"] to its entry')


@pytest.mark.parametrize(
    "line",
    [
        "",
        "TypeError: x is undefined",
        "ERROR HTTP server failed",
        "Node.js v20",
        "FORETOOL_TOKEN is not set",
        "MY_TOKEN is not set",
    ],
)
def test_nothing_is_said_of_other_trouble_or_of_our_own_variables(line: str) -> None:
    assert said(line) == ""


def test_a_flood_of_names_is_cut() -> None:
    names = [f"VAR_{number}" for number in range(1000)]
    found = advise([" ".join(names)], dict.fromkeys(names, "x"), ())
    assert len(found) < 300 and '"VAR_3"' in found and "VAR_4" not in found


def test_a_long_line_takes_no_time() -> None:
    assert advise(["set " * 20_000, "A_" * 20_000, "NEED " * 20_000], OURS, ()) == ""
