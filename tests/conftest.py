"""Every asynchronous test runs on asyncio, which the server is written for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import served
from fakes import SwiftLoop
from forks import forking
from served import Served

import foretool.learning.commands.learn  # noqa: F401 -- takes the names of the methods before a test changes them
from foretool.server.calls import runner
from foretool.storage.opening import open_store
from foretool.storage.store import Store

OF_A_PROCESS = {
    "PYTEST_CURRENT_TEST", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ORT_DISABLE_TELEMETRY",
    "TORCHINDUCTOR_CACHE_DIR",
}  # fmt: skip
"""What pytest sets, what `serve` and `learn` set for the process that they have to themselves elsewhere, what keeps
onnxruntime silent, and what torch sets at its first training."""


CONVERSATIONS = (
    "attacks", "scenarios", "server/calls", "server/clients", "server/methods", "server/upstreams",
    "server/test_housekeeping.py", "server/transports/client/test_stdio.py",
    "server/transports/test_guard.py",
)  # fmt: skip
"""What runs on `fakes.SwiftLoop`."""


hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")
"""That a machine is busy is no finding."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requirement(*ids): promises of tests/requirements.py that the test holds us to")
    config.addinivalue_line("markers", "real: needs packages from a registry; installs them under .tools")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take longest come first, so that no worker is left alone with one of them at the end."""
    longest: dict[Path, float] = {}
    for item in items:
        if any(item.get_closest_marker(mark) for mark in ("slow", "real")):
            mark = item.get_closest_marker("timeout")
            longest[item.path] = max(longest.get(item.path, 1.0), mark.args[0] if mark else 1.0)
    items.sort(key=lambda item: -longest.get(item.path, 0.0))


def pytest_collection_finish() -> None:
    """What was collected stays until the end: looking through it for garbage takes a fifth of a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Conversations run on a clock that jumps; what writes to sockets marks itself with `on_the_real_clock`."""
    swift = any(request.path.is_relative_to(Path(__file__).parent / folder) for folder in CONVERSATIONS)
    return "asyncio", {"loop_factory": SwiftLoop} if swift else {}


@pytest.fixture(autouse=True)
def clients_that_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of tests call at once, and count as models that have read the last answer."""
    monkeypatch.setattr(runner, "READING_S", 0.0)


@pytest.fixture(autouse=True)
def environment_left_as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test that changes the environment for the tests after it. `monkeypatch` has undone its own by then."""
    before = dict(os.environ)
    yield
    monkeypatch.undo()
    changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update({name: before[name] for name in changed & before.keys()})
    changed -= OF_A_PROCESS
    assert not changed, f"changed for the tests after it: {sorted(changed)}"


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as opened:
        yield opened


@pytest.fixture
def own_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign-ins are kept in a folder of the test, and no keyring is asked."""
    monkeypatch.setenv("FORETOOL_SIGN_INS", str(tmp_path / "sign-ins"))
    monkeypatch.setenv("FORETOOL_KEYRING", "off")


@pytest.fixture(scope="session")
def forking_python() -> Iterator[str]:
    """What to start in place of Python where a test starts many commands."""
    with forking() as program:
        yield program


@pytest.fixture
def forked(forking_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies that the test starts are forks, which no signal reaches."""
    monkeypatch.setattr(served, "PYTHON", forking_python)


@pytest.fixture
def servings() -> Iterator[list[Served]]:
    """What a test starts; ended whatever happens."""
    started: list[Served] = []
    yield started
    for each in started:
        if each.process.poll() is None:
            each.kill()


# Tests start hundreds of processes: none should compile what another has compiled, however pytest was started.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()  # until all is collected: a sixth of the time that takes would go into looking for garbage

os.environ["FORETOOL_SOCKETS"] = "off"
os.environ["FORETOOL_LIMITS"] = "file"  # what is a constant for users, tests may set
"""No test finds a proxy that runs on this machine, or leaves a socket behind; tests of the socket name a folder."""
