"""Nothing secret of an entry is shown, however short it is; what is no secret stays readable."""

from __future__ import annotations

import json

import pytest

from foretool.server.setup.masking import describe_entry, is_reference, mask_arguments, mask_text, mask_url


@pytest.mark.parametrize(
    ("value", "shown"),
    [("${A}", True), ("Bearer ${A}", True), ("Bearer x${A}", False), ("${A:-x}", False), ("x", False), ("", False)],
)
def test_only_a_value_that_names_variables_is_shown(value: str, shown: bool) -> None:
    assert is_reference(value) is shown


def test_secret_arguments_are_hidden_and_others_stay() -> None:
    arguments = [
        "-y", "pkg@1", "--api-key", "abc", "--token=x", "--token", "${T}", "KEY=v", "Authorization: Bearer q",
        "--root", "/home", "https://u:p@h/?k=v&m=${M}",
    ]  # fmt: skip
    assert mask_arguments(arguments) == [
        "-y", "pkg@1", "--api-key", "[api-key]", "--token=[token]", "--token", "${T}", "KEY=[KEY]",
        "Authorization: [Authorization]", "--root", "/home", "https://u:[secret]@h/?k=[k]&m=${M}",
    ]  # fmt: skip


def test_a_switch_after_a_secret_option_is_no_value() -> None:
    assert mask_arguments(["--auth", "--port", "80"]) == ["--auth", "--port", "80"]


def test_an_address_loses_its_query() -> None:
    assert mask_url("https://mcp.example/mcp?api_key=1#x") == "https://mcp.example/mcp?api_key=[api_key]#x"


def test_an_entry_is_one_line() -> None:
    assert describe_entry({"command": "npx", "args": ["-y", "a b", "--token", "t"]}) == "npx -y 'a b' --token [token]"
    assert describe_entry({"command": ["npx", "-y", "--token", "t"]}) == "npx -y --token [token]"
    assert describe_entry({"url": "https://h/?t=1"}) == "https://h/?t=[t]"


def test_every_secret_of_a_file_is_hidden_and_its_lines_stay() -> None:
    text = """{ // ours
  "mcpServers": {
    "a": {"command": "x", "args": ["--key", "s1"], "env": {"T": "s2", "U": "${U}", "N": 7}}, // behind
    "b": {"url": "https://h/?k=s3", "headers": {"X": "s4"}, "oauth": {"client_secret": "s5"}},
  },
  "foretool": {"token": "s6", "tokens": [{"name": "n", "token": "s7"}], "encoder_key": "s8"},
}
"""
    assert (
        mask_text(text)
        == """{ // ours
  "mcpServers": {
    "a": {"command": "x", "args": ["--key", "[key]"], "env": {"T": "[T]", "U": "${U}", "N": "[N]"}}, // behind
    "b": {"url": "https://h/?k=[k]", "headers": {"X": "[X]"}, "oauth": {"client_secret": "[client_secret]"}},
  },
  "foretool": {"token": "[token]", "tokens": [{"name": "n", "token": "[token]"}], "encoder_key": "[encoder_key]"},
}
"""
    )


@pytest.mark.parametrize("block", [
    {"enrich": {"url": "https://h", "key": "s1"}}, {"judge": {"model": "m", "key": "s1"}}, {"seal_keys": ["s1"]},
    {"access": {"client_id": "c", "client_secret": "s1"}}, {"storage": "postgresql://me:s1@host/foretool"},
])  # fmt: skip
def test_every_credential_of_our_own_is_hidden(block: dict[str, object]) -> None:
    shown = mask_text(json.dumps({"mcpServers": {}, "foretool": block}))
    assert "s1" not in shown and json.loads(shown)["foretool"].keys() == block.keys()


def test_what_cannot_be_read_is_not_shown() -> None:
    assert mask_text('{"mcpServers": {"a": {"env": {"T": "secret"') == ""
