"""A background job that fails: clients notice nothing, `status` and `doctor` name it until it works again."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, changed, proxy_over, said
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.recording.notes import find_failing_jobs
from foretool.storage.opening import open_serving_store

pytestmark = pytest.mark.anyio


async def say(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    capsys.readouterr()
    status = await asyncio.to_thread(run, command)
    return status, capsys.readouterr().out


@requirement("trust:jobs:guarded")
async def test_a_config_that_can_no_longer_be_watched_is_said_once_and_changes_are_followed_again_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, store = tmp_path / "conf", tmp_path / "store.sqlite3"
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"mcpServers": {}, "foretool": {"storage": str(store), "encoder": "none"}}))
    folder.mkdir()
    upstream = FakeUpstream("calc", ["add"], entry={"pin": ["*"]})
    with open_serving_store(store) as opened:
        async with proxy_over(upstream, store=opened) as stage:
            await stage.client.initialize()
            path = folder / "mcp.json"
            written = {**stage.app.written["foretool"], "retention_days": 5}
            path.write_text(json.dumps({**stage.app.written, "foretool": written}))
            folder.rename(tmp_path / "moved")
            folder.write_text("a file where the folder was")
            stage.app.live.now = changed(stage.app.config, path=path)
            await asyncio.sleep(10)
            assert said(await stage.client.call_tool("calc__add", {})) == "add"
            (failure,) = [each for each in caplog.records if "FT209" in each.getMessage()]
            assert "'config' failed: NotADirectoryError" in failure.getMessage()
            status, printed = await say(capsys, "status", "--json", "--config", str(asked))
            (job,) = json.loads(printed)["failing_jobs"]
            assert status == 1 and (job["job"], job["code"]) == ("config", "FT209") and "mcp.json" in job["error"]
            assert "background job 'config' has failed for" in (await say(capsys, "status", "--config", str(asked)))[1]
            found = json.loads((await say(capsys, "doctor", "--json", "--config", str(asked)))[1])
            assert [each["job"] for each in found["failing_jobs"]] == ["config"]
            assert "FT209" in [each["code"] for each in found["findings"]]
            folder.unlink()
            (tmp_path / "moved").rename(folder)
            await asyncio.sleep(60)
            assert stage.app.config.settings.retention_days == 5
            assert json.loads((await say(capsys, "status", "--json", "--config", str(asked)))[1])["failing_jobs"] == []
    assert [each.levelno for each in caplog.records if each.name == "foretool.jobs"] == [logging.ERROR, logging.WARNING]
    assert find_failing_jobs(store) == ()


@requirement("trust:jobs:guarded")
async def test_a_change_of_the_config_that_fails_halfway_is_made_again_as_a_whole(tmp_path: Path) -> None:
    stays, comes = FakeUpstream("stays", ["a"], entry={"cwd": "/"}), FakeUpstream("comes", ["b"])
    async with proxy_over(stays, policy="full") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        failures: list[Any] = [OSError("too many open files"), OSError("too many open files")]

        def follow() -> None:
            if failures:
                raise failures.pop()

        stage.app.reloader.add_follower(follow)
        stage.app.fakes["comes"] = comes
        written = stage.app.written
        written["mcpServers"]["comes"] = {"command": "fake"}
        written["foretool"]["retention_days"] = 5
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps(written))
        stage.app.live.now = changed(stage.app.config, path=path)
        await asyncio.sleep(2)
        assert [each.job for each in stage.app.guard.failing()] == ["config"]
        await asyncio.sleep(20)
        assert stage.app.guard.failing() == () and not failures
        assert said(await stage.client.call_tool("comes__b", {})) == "b"
        assert (stays.starts, comes.starts) == (1, 1)
