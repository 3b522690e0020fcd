"""Secrets move out of entries."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.setup.secrets import move_secrets

TOKEN = "ghp_0123456789abcdefABCDEF0123456789abcd"


def entries() -> dict[str, dict[str, Any]]:
    return {
        "github": {"command": "npx", "env": {"GITHUB_TOKEN": TOKEN, "LANG": "C", "KEY": "${KEY}"}},
        "linear": {"url": "https://h/mcp", "headers": {"Authorization": f"Bearer {TOKEN}", "X-Team": "core"}},
    }


def test_secrets_go_into_the_keyring_and_the_rest_stays() -> None:
    found = entries()
    moved = move_secrets(found, "keyring", {})
    assert found["github"]["env"] == {
        "GITHUB_TOKEN": "${keyring:github/GITHUB_TOKEN}", "LANG": "C", "KEY": "${KEY}",
    }  # fmt: skip
    assert found["linear"]["headers"] == {"Authorization": "Bearer ${keyring:linear/Authorization}", "X-Team": "core"}
    assert moved.values == {"github/GITHUB_TOKEN": TOKEN, "linear/Authorization": TOKEN}
    assert [each[:3] for each in moved.written] == [
        ("github", "env", "GITHUB_TOKEN"), ("linear", "headers", "Authorization"),
    ]  # fmt: skip
    assert TOKEN not in repr(moved)


@pytest.mark.parametrize("environ", [{}, {"GITHUB_TOKEN": "another"}])
def test_a_variable_takes_the_place_of_a_secret_only_where_it_holds_it(environ: dict[str, str]) -> None:
    found = entries()
    moved = move_secrets(found, "env", environ)
    assert found == entries() and not moved.written
    assert "github: GITHUB_TOKEN stays in the file" in moved.left[0] and TOKEN not in str(moved.left)
    moved = move_secrets(found, "env", {"GITHUB_TOKEN": TOKEN})
    assert found["github"]["env"]["GITHUB_TOKEN"] == "${GITHUB_TOKEN}" and moved.values == {}


def test_what_was_moved_is_not_moved_again() -> None:
    found = entries()
    move_secrets(found, "keyring", {})
    assert move_secrets(found, "keyring", {}).written == []
