"""A run that is ended at any moment loses the work of one method at most, and locks nobody out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_child import METHODS
from learning_setting import RAIN, SUM, Setting
from requirements import requirement

from foretool.learning.checkpoints import Checkpoints
from foretool.learning.run import RUN, Busy
from foretool.retrieval import methods
from foretool.server.learning_schedule import LEARNING
from foretool.storage.engine import StorageError
from foretool.storage.sqlite.leads import FileLead as Lead

CHILD = Path(__file__).parents[1] / "support" / "learning_child.py"
FIRST, SECOND, LAST = "dtdr: training for the replay", "masstool: training for the replay", "weights: replaying"


@pytest.fixture
def two_methods(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(methods, "METHODS", METHODS)
    setting.demonstrate(SUM, RAIN, times=40)
    return setting


@contextmanager
def stopped(setting: Setting, point: str) -> Iterator[subprocess.Popen[str]]:
    """A learner that has come to this point and goes no further."""
    words = [sys.executable, str(CHILD), str(setting.config.path), point]
    pipe = subprocess.PIPE
    path = os.pathsep.join((str(CHILD.parent), *filter(None, [os.environ.get("PYTHONPATH")])))
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}) as child:
        assert child.stdout
        try:
            assert point in iter(lambda: child.stdout.readline().strip() or pytest.fail("it ended"), "")  # type: ignore[union-attr]
            yield child
        finally:
            child.kill()


@pytest.mark.slow
@requirement("learn:ended")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("point", "known"), [("lead", []), (FIRST, []), (SECOND, ["dtdr"]), (LAST, ["dtdr", "masstool"])]
)
def test_the_next_run_starts_at_once_and_goes_on(
    two_methods: Setting, point: str, known: list[str], end: signal.Signals
) -> None:
    setting = two_methods
    with stopped(setting, point) as child:
        child.send_signal(end)
        child.wait()
        run = setting.learn(now=2e6 + 60)
    again = [each.kind for each in run.results if "from the run that was ended" in each.reason]
    assert [kind for kind in again if kind in METHODS] == known
    assert {each.kind for each in run.results} >= {"dtdr", "masstool", "weights"}
    served = setting.artifacts.active("dtdr")
    assert served is not None and served.number == 1
    assert [each.number for each in setting.artifacts.history("dtdr")] == [1]
    assert setting.artifacts.version == 1
    assert not setting.config.storage.with_name("foretool.sqlite3.unfinished").exists()


@pytest.mark.slow
@requirement("learn:ended")
def test_a_continued_run_learns_what_a_whole_one_does(two_methods: Setting, tmp_path: Path) -> None:
    with stopped(two_methods, LAST):
        pass
    continued = two_methods.learn(now=2e6)
    other = tmp_path / "other"
    other.mkdir()
    whole = Setting(other)
    whole.demonstrate(SUM, RAIN, times=40)
    fresh = whole.learn(now=2e6)
    whole.store.close()
    assert two_methods.outcomes(continued) == whole.outcomes(fresh)
    kept, made = (two_methods.result("weights", run).report for run in (continued, fresh))
    assert kept | {"took_s": 0} == made | {"took_s": 0}


@pytest.mark.slow
@requirement("learn:ended")
@pytest.mark.parametrize("why", ["old", "other tasks", "damaged", "gone"])
def test_a_run_that_no_longer_fits_is_not_continued(two_methods: Setting, why: str) -> None:
    setting = two_methods
    with stopped(setting, SECOND):
        pass
    folder = setting.config.storage.with_name("foretool.sqlite3.unfinished")
    now = 2e6
    if why == "old":
        now += 86_401.0
    elif why == "other tasks":
        setting.demonstrate(SUM, RAIN, times=40, first=100)
    for path in folder.iterdir():
        if why == "damaged":
            path.write_bytes(b"x" + path.read_bytes()[1:])
        elif why == "gone":
            path.unlink()
    run = setting.learn(now=now)
    assert "ended before" not in setting.result("dtdr", run).reason
    assert not folder.exists()


@requirement("learn:ended")
@pytest.mark.parametrize("end", ["before its record", "within it", "after it"])
def test_a_run_that_is_killed_when_all_is_learned_is_either_over_or_continued(
    two_methods: Setting, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    setting = two_methods
    kept = type(setting.store.artifacts)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if end == "before its record":
            patch.setattr("foretool.learning.run.RunResult", kill)
        elif end == "within it":
            patch.setattr(kept, "bump_version", kill)
        else:
            patch.setattr(Checkpoints, "clear", lambda self: kill() if setting.artifacts.history(RUN, 1) else None)
        setting.learn(now=2e6)
    is_over = end == "after it"
    assert (setting.artifacts.version, len(setting.artifacts.history(RUN))) == ((1, 1) if is_over else (0, 0))
    run = setting.learn(now=2e6 + 60)
    again = [each.kind for each in run.results if "from the run that was ended" in each.reason]
    # A run that is over is not continued: the next one is a new run, for which models in use need later tasks.
    assert [kind for kind in again if kind in METHODS] == ([] if is_over else ["dtdr", "masstool"])
    assert [each.number for each in setting.artifacts.history("dtdr")] == [1]


@requirement("learn:ended")
def test_a_clock_set_back_does_not_keep_anybody_from_learning(two_methods: Setting) -> None:
    two_methods.learn(now=5e6)
    with stopped(two_methods, "lead"):
        pass
    assert two_methods.learn(now=1e6).episodes == 40


@requirement("learn:one")
def test_two_learners_do_not_run_at_once(two_methods: Setting) -> None:
    with stopped(two_methods, SECOND) as child:
        with pytest.raises(
            Busy, match=rf"another process is learning from this store \(process {child.pid}, since .*at"
        ):
            two_methods.learn()
        assert two_methods.artifacts.history("run") == []
    assert two_methods.learn().episodes == 40


@requirement("learn:one")
def test_a_pid_that_another_process_has_by_now_keeps_nobody_out(two_methods: Setting) -> None:
    lead = Lead(two_methods.config.storage, LEARNING)
    assert lead.take()
    lead.release()
    assert lead.path is not None
    lead.path.write_text(f'{{"pid": {os.getppid()}, "since": 1.0, "at": 1e12}}')  # it lives, and learns nothing
    assert two_methods.learn().episodes == 40


@requirement("learn:ended")
@pytest.mark.parametrize("found", ["removed", "replaced"])
def test_nothing_is_written_once_another_file_stands_there(two_methods: Setting, found: str) -> None:
    setting = two_methods
    storage = setting.config.storage
    aside = storage.with_name("aside")
    said: list[str] = []

    def replace(kind: str, _what: str, _share: float) -> None:
        said.append(kind)
        if kind == "masstool" and not aside.exists():
            storage.rename(aside)
            if found == "replaced":
                storage.write_bytes(b"")

    with pytest.raises(StorageError, match="removed or replaced while learning"):
        setting.learn(say=replace)
    assert [each.kind for each in setting.artifacts.history() if each.kind in ("run", "masstool")] == []
    assert said.count("masstool") == 1
