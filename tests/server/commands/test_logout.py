"""`foretool logout`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from served import write_config
from sign_ins import a_server, admin, agree, guarded

from foretool.server.commands import login
from foretool.server.commands.group import run
from foretool.server.signin.flow import sign_in
from foretool.server.signin.tokens import revoke
from foretool.server.signin.vault import Vault

pytestmark = pytest.mark.usefixtures("own_vault")


@pytest.mark.anyio
async def test_the_tokens_end_at_the_authorization_server(tmp_path: Path) -> None:
    async with guarded() as url:
        path, vault = write_config(tmp_path, {"guarded": {"url": url}}), Vault.own()
        server = a_server(url)
        vault.save(server, await sign_in(server, vault, agree))
        status = await asyncio.to_thread(run, ["logout", "guarded", "--config", str(path), "--json"])
        counts = await admin(url)
    assert (status, counts["revoke"]) == (0, 2)
    assert vault.load(server) is None


def test_without_a_sign_in_there_is_nothing_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"guarded": {"url": "https://mcp.example/mcp"}})
    assert run(["logout", "guarded", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"server": "guarded", "was_signed_in": False, "is_revoked": False}
    assert login.revoke is revoke
