"""What a tool does, in one line."""

from __future__ import annotations

from fakes import tool

from foretool.server.discovery.schemas import summarize
from foretool.server.protocol.jsonrpc import encode


def test_a_summary_ends_after_a_whole_word() -> None:
    definition = encode(tool("mail", "Sends a letter to everybody who is on the list of the people that you know"))
    assert summarize(definition, 40) == "Sends a letter to everybody who is on…"
    assert summarize(definition) == "Sends a letter to everybody who is on the list of the people that you know"
