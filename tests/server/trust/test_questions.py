"""Questions of servers: their texts name the server, and credentials are recognised. Attacks: tests/attacks."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.protocol import jsonrpc
from foretool.server.trust.questions import (
    QuestionRefused,
    prepare_log,
    prepare_question,
)


def asked(method: str, params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = jsonrpc.decode_value(prepare_question("git", method, jsonrpc.raw(params)))  # type: ignore[arg-type]
    return found


def form(**properties: Any) -> dict[str, Any]:
    return asked("elicitation/create", {"message": "?", "requestedSchema": {"properties": properties}})


@pytest.mark.parametrize(
    "name",
    ["password", "userPassword", "API_KEY", "github-token", "token", "secret", "otp", "cvv", "accessToken"],
)
def test_a_field_whose_name_means_a_credential_is_refused(name: str) -> None:
    with pytest.raises(QuestionRefused, match=name):
        form(**{name: {"type": "string"}})


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("max_tokens", {"type": "integer"}),
        ("token_count", {"type": "string"}),
        ("passenger", {"type": "string"}),
        ("secretary", {"type": "string"}),
        ("keyword", {"type": "string"}),
        ("reset_password", {"type": "boolean"}),
        ("password", {"type": "string", "enum": ["keep", "reset"]}),
        ("token", {"oneOf": [{"const": "usd", "title": "Dollar"}]}),
        ("pinned", {"type": "string"}),
        ("note", {"type": "string", "description": "Anything that helps us."}),
        ("odd", 5),
    ],
)
def test_other_fields_are_asked_for(name: str, schema: Any) -> None:
    assert form(**{name: schema})["message"] == "Server 'git' asks: ?"


@pytest.mark.parametrize("params", ['"x"', "[]", "5"])
def test_parameters_that_are_no_object_are_an_error(params: str) -> None:
    raw = jsonrpc.Raw(params.encode())
    with pytest.raises(ValueError):
        prepare_question("git", "elicitation/create", raw)
    with pytest.raises(ValueError):
        prepare_log("git", raw)
