"""Attacks that want to stay: a server starts processes outside its group, which must end with it and with us."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, is_alive, wait_until, write_config

from foretool.server.system.strays import MARK, find_marked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the environment of processes is only read on Linux here"),
]

TELLING = str(Path(__file__).parents[1] / "support" / "telling_upstream.py")


def leaves(kind: str, pids: Path, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [TELLING, "--leave", kind, "--pids", str(pids)], **entry}


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """The file of processes that were left behind; ended whatever happens."""
    path = tmp_path / "pids"
    yield path
    for pid in pids_in(path):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def serve(config: Path, servings: list[Served]) -> Served:
    served = Served(config)
    servings.append(served)
    served.initialize()
    served.list_tools()
    return served


@requirement("trust:processes:left-behind")
@pytest.mark.parametrize("kind", ["session", "daemon", "stubborn", "nameless"])
def test_what_left_the_group_of_its_server_ends_with_the_proxy(
    tmp_path: Path, servings: list[Served], left: Path, kind: str
) -> None:
    served = serve(write_config(tmp_path, {"one": leaves(kind, left)}), servings)
    (stray,) = pids_in(left)
    assert is_alive(stray)
    assert served.leave() == 0
    assert wait_until(lambda: not is_alive(stray))


@requirement("trust:processes:left-behind")
@pytest.mark.parametrize("kind", ["session", "daemon", "stubborn"])
def test_it_ends_after_kill_9_of_the_proxy_too(tmp_path: Path, servings: list[Served], left: Path, kind: str) -> None:
    served = serve(write_config(tmp_path, {"one": leaves(kind, left)}), servings)
    (stray,) = pids_in(left)
    served.kill()
    assert wait_until(lambda: not is_alive(stray))


@requirement("trust:processes:left-behind")
def test_one_that_forks_all_the_time_ends_too(tmp_path: Path, servings: list[Served], left: Path) -> None:
    served = serve(write_config(tmp_path, {"one": leaves("hydra", left)}), servings)
    mark = json.loads(served.call("one__tell"))["env"][MARK]
    seen: set[int] = set()

    def see() -> bool:  # one look may come while no head is there yet that can be read
        seen.update(find_marked(mark))
        return len(seen) > 2

    assert wait_until(see), "the server and two heads of the hydra"
    assert served.leave() == 0
    assert wait_until(lambda: not list(find_marked(mark)))


@requirement("trust:processes:left-behind")
def test_it_ends_when_its_server_is_killed_and_the_one_of_another_server_stays(
    tmp_path: Path, servings: list[Served], left: Path
) -> None:
    others = tmp_path / "others"
    servers = {"one": leaves("daemon", left), "two": leaves("daemon", others)}
    served = serve(write_config(tmp_path, servers), servings)
    (stray,), (other,) = pids_in(left), pids_in(others)
    os.kill(json.loads(served.call("one__tell"))["pid"], signal.SIGKILL)
    assert wait_until(lambda: not is_alive(stray))
    assert json.loads(served.call("one__tell"))["pid"]
    assert len(pids_in(left)) == 2 and is_alive(pids_in(left)[1]), "the restarted server has a new one"
    assert is_alive(other)
    assert served.leave() == 0
    assert wait_until(lambda: not any(map(is_alive, (*pids_in(left), *pids_in(others)))))


@requirement("trust:processes:left-behind")
def test_a_server_cannot_name_the_mark_of_another_in_its_config(tmp_path: Path, servings: list[Served]) -> None:
    servers = {"one": {"command": sys.executable, "args": [TELLING], "env": {"FORETOOL_UPSTREAM": "mine"}}}
    served = serve(write_config(tmp_path, servers), servings)
    assert json.loads(served.call("one__tell"))["env"]["FORETOOL_UPSTREAM"] != "mine"
    assert served.leave() == 0
