"""Questions of servers: their texts name the server, and credentials are recognised. Attacks: tests/attacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretool.server.protocol import jsonrpc
from foretool.server.trust.questions import (
    QuestionRefused,
    attribute,
    prepare_log,
    prepare_question,
    prepare_questions,
    prepare_sign_in,
)


def asked(method: str, params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = jsonrpc.decode_value(prepare_question("git", method, jsonrpc.raw(params)))  # type: ignore[arg-type]
    return found


def form(**properties: Any) -> dict[str, Any]:
    return asked("elicitation/create", {"message": "?", "requestedSchema": {"properties": properties}})


@pytest.mark.parametrize(
    ("text", "said"),
    [("a", "Server 'git' asks: a"), ("", "Server 'git' asks:"), ("\n a\n\nb ", "Server 'git' asks:\n> a\n> \n> b")],
)
def test_a_text_is_said_to_be_that_of_its_server_line_by_line(text: str, said: str) -> None:
    assert attribute("git", text) == said


@pytest.mark.parametrize("message", [5, None, ["x"]])
def test_a_message_that_is_no_text_names_the_server_all_the_same(message: Any) -> None:
    assert asked("elicitation/create", {"message": message})["message"] == "Server 'git' asks:"


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


def test_a_schema_that_is_none_is_left_to_the_client() -> None:
    params = {"message": "?", "requestedSchema": [1]}
    assert asked("elicitation/create", params)["requestedSchema"] == [1]


def test_a_question_without_a_text_of_its_own_stays_as_it_is() -> None:
    assert asked("roots/list", {"x": 1.0}) == {"x": 1.0}
    assert prepare_question("git", "roots/list", jsonrpc.UNSET) is jsonrpc.UNSET


@pytest.mark.parametrize("result", [{"content": []}, {"inputRequests": {}}])
def test_a_result_without_questions_stays_as_it_is(result: dict[str, Any]) -> None:
    raw = jsonrpc.raw(result)
    assert prepare_questions("git", raw) is raw


@pytest.mark.parametrize("params", ['"x"', "[]", "5"])
def test_parameters_that_are_no_object_are_an_error(params: str) -> None:
    raw = jsonrpc.Raw(params.encode())
    with pytest.raises(ValueError):
        prepare_question("git", "elicitation/create", raw)
    with pytest.raises(ValueError):
        prepare_log("git", raw)


def test_an_error_of_another_kind_stays_as_it_is() -> None:
    error = jsonrpc.error_object(-1, "no")
    assert prepare_sign_in("git", error) is error


def test_an_error_that_asks_for_nothing_names_the_server_and_keeps_its_data() -> None:
    error = jsonrpc.error_object(jsonrpc.URL_ELICITATION_REQUIRED, "log in", {"more": 1.0})
    assert json.loads(bytes(prepare_sign_in("git", error))) == {
        "code": jsonrpc.URL_ELICITATION_REQUIRED, "message": "Server 'git' asks: log in", "data": {"more": 1.0},
    }  # fmt: skip
