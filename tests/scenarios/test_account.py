"""A client keeps an account of what it reads and misses; the ledger has to agree with it, miss by miss."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from requirements import requirement

from bench import processes
from bench.proxy import account

pytestmark = pytest.mark.slow

TASKS = 8


@requirement("miss:account")
@pytest.mark.parametrize("kind", account.KINDS)
def test_the_ledger_agrees_with_the_account_of_a_client_on_every_search_and_every_miss(
    tmp_path: Path, kind: account.Kind
) -> None:
    command = processes.installed(None)
    place, kept = anyio.run(account.run, command, tmp_path, kind, TASKS, "none")
    lines = account.compare(place, kept)
    assert [line for line in lines if not line.agrees] == []
    assert kept.searches > 5 and kept.calls > 5
