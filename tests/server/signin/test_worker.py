"""Signing in by a process of its own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import httpx2
import pytest
from served import write_config
from sign_ins import admin, guarded

from foretool.server.signin import worker
from foretool.server.signin.vault import Vault
from foretool.server.signin.worker import LinkSignIn, sign_in_machine

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.usefixtures("own_vault")]


@pytest.mark.slow
async def test_a_link_comes_from_a_process_that_waits_for_the_answer(tmp_path: Path) -> None:
    async with guarded() as url:
        path = write_config(tmp_path, {"guarded": {"url": url}})
        signing_in = LinkSignIn("guarded", path)
        link = await signing_in.link()
        async with httpx2.AsyncClient() as http:
            assert (await http.get(link, follow_redirects=True)).status_code == 200
        await signing_in.finished()
        counts = await admin(url)
    assert counts["code"] == 1
    assert [each.suffix for each in Vault.own().folder.iterdir()] == [".json"]


@pytest.mark.slow
async def test_a_sign_in_that_nobody_wants_any_more_is_ended(tmp_path: Path) -> None:
    async with guarded() as url:
        signing_in = LinkSignIn("guarded", write_config(tmp_path, {"guarded": {"url": url}}))
        assert await signing_in.link()
        await signing_in.stop()
    assert signing_in.is_over


@pytest.mark.slow
async def test_a_machine_that_is_refused_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded() as url:
        base = url.removesuffix("/mcp")
        oauth = {
            "grant": "client_credentials",
            "client_id": "own",
            "client_secret": "s3cret-word",
            "issuer": f"{base}/",
        }
        path = write_config(tmp_path, {"guarded": {"url": url, "oauth": oauth}})
        with caplog.at_level(logging.WARNING):
            assert not await sign_in_machine("guarded", path)
    assert "the sign-in failed" in caplog.text and "s3cret-word" not in caplog.text


@pytest.mark.slow
async def test_why_there_is_no_link_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(registration=False) as url:
        signing_in = LinkSignIn("guarded", write_config(tmp_path, {"guarded": {"url": url}}))
        assert await signing_in.link() == ""
        await signing_in.finished()
    assert "guarded: the sign-in failed" in caplog.text


async def test_a_process_that_writes_much_to_stderr_still_shows_its_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chatty = (
        "import json, sys; sys.stderr.write('noise ' * 100_000 + 'the\\x1b[31m last words'); sys.stderr.flush();"
        "print(json.dumps({'event': 'link', 'url': 'https://auth.example/'}), flush=True); sys.exit(1)"
    )
    monkeypatch.setattr(worker, "worker_command", lambda *_: [sys.executable, "-c", chatty])
    signing_in = LinkSignIn("guarded", tmp_path / "mcp.json")
    assert await signing_in.link() == "https://auth.example/"
    await signing_in.finished()
    assert caplog.messages[-1].endswith("last words")
    assert len(caplog.messages[-1]) <= worker.MOST_SAID and "\x1b" not in caplog.messages[-1]
