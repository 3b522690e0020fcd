"""A call that needs a sign-in, over a real proxy, login and authorization server."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listening import printing
from requirements import requirement
from served import Served, wait_until, write_config

OAUTH_SERVER = Path(__file__).parents[2] / "support" / "oauth_server.py"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with printing([sys.executable, str(OAUTH_SERVER)]) as found:
        yield found


@pytest.fixture
def config(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETOOL_SIGN_INS", str(tmp_path / "sign-ins"))
    monkeypatch.setenv("FORETOOL_KEYRING", "off")
    return write_config(tmp_path, {"guarded": {"url": url}}, policy="full", record="full")


def initialize(served: Served, capabilities: dict[str, Any]) -> None:
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
    served.ask("initialize", params)
    served.write({"jsonrpc": "2.0", "method": "notifications/initialized"})


@pytest.mark.slow
def test_a_client_that_opens_links_gets_one_and_the_next_call_works(config: Path) -> None:
    served = Served(config)
    try:
        initialize(served, {"elicitation": {"url": {}}})
        asked = served.post("tools/call", {"name": "guarded__read", "arguments": {}})
        question = served.next()
        while question.get("method") != "elicitation/create":
            question = served.next()
        params = question["params"]
        assert params["mode"] == "url" and params["message"].startswith("Sign in to 'guarded'")
        urllib.request.urlopen(params["url"]).close()
        served.write({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        (block,) = served.reply(asked)["result"]["content"]
        assert "call again now" in block["text"]
        assert wait_until(lambda: served.call("guarded__read") == "read: read")
    finally:
        served.leave()


@pytest.mark.slow
@requirement("trust:sign-in:silent")
def test_other_clients_are_told_what_to_do_and_no_token_is_written_anywhere(config: Path, tmp_path: Path) -> None:
    served = Served(config)
    try:
        served.initialize()
        said = served.call("guarded__read")
        assert said == (
            "server 'guarded' needs a sign-in. Ask the user to run `foretool login guarded` in a terminal, then call"
            " again. [FT311]"
        )
        assert "`foretool login guarded`" in served.call("discover_tools", {"task": "read a file"})
        from sign_ins import a_server, a_vault, agree

        from foretool.server.signin.flow import sign_in

        url = json.loads(config.read_text())["mcpServers"]["guarded"]["url"]
        vault, server = a_vault(tmp_path), a_server(url)
        record = asyncio.run(sign_in(server, vault, agree))
        vault.save(server, record)
        assert wait_until(lambda: "guarded__read" in served.list_tools())
        assert served.call("guarded__read") == "read: read"
        assert "allow more" in served.call("guarded__write")
    finally:
        served.leave()
    written = b"".join(each.read_bytes() for each in tmp_path.glob("store.sqlite3*"))
    spoken = b"".join(served.lines) + "\n".join(served.errors).encode()
    assert not any(secret.encode() in written + spoken for secret in record.secrets)
