"""A short run of the bench that times first lists and calls beside an open page."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from bench.clients.stdio import StdioClient
from bench.processes import installed
from bench.proxy import beside_page
from bench.storage.ledger import write_ledger

START = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_it_prints_each_figure_with_and_without_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--client", "http", "--pairs", "1", "--phase-s", "0.1", "--records", "200", "--misses", "20"]
    beside_page.main(given)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["figure"] for row in rows] == list(beside_page.FIGURES)
    assert all(row["client"] == "http" and row["pairs"] == 1 and row["with"] > 0 < row["without"] for row in rows)


def test_an_open_page_is_read_again_when_a_call_is_recorded(tmp_path: Path) -> None:
    config = write_ledger(tmp_path, 200, 20, 5.0, START)
    beside_page.add_server(config)
    command = installed(None)

    async def read() -> int:
        async with asyncio.timeout(60), StdioClient.serve(command, config) as client:
            await client.first_list()
            async with beside_page.serve_page(command, config) as link, beside_page.follow(link) as reads:
                while not reads.count:
                    await client.call(beside_page.TOOL, {"text": "x"})
                    await asyncio.sleep(0.2)
                return reads.count

    assert asyncio.run(read()) == 1


def test_it_says_that_chromium_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside_page.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="--client chromium: none of chromium, "):
        beside_page.main(["--client", "chromium"])
