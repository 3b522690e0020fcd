"""`docs/tutorial.md` does what it says, with real servers, and its recording shows the page as it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tour = load(ROOT / "docs" / "tour.py")
STEPS = tour.read_steps(tour.PAGE.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    if not (ROOT / "demo").is_dir() or not shutil.which("node"):
        pytest.skip("needs a checkout and Node for the servers of the demo")
    outcomes = list(load(ROOT / "demo" / "servers.py").install_all())
    if failed := [each for each in outcomes if not hasattr(each, "version")]:
        pytest.skip(f"servers of the demo: {failed}")
    missing = {
        step.source: lines
        for step, printed in tour.run_steps(STEPS, tmp_path)
        if (lines := tour.missing_lines(step.shown, printed))
    }
    assert missing == {}
    assert not (tmp_path / "home" / "foretool-tour").exists(), "the last command leaves nothing"


def test_the_steps_of_the_page_are_found() -> None:
    assert [step.kind for step in STEPS].count("client") == 2
    assert sum(step.source.count("foretool ") for step in STEPS if step.kind == "sh") >= 7
    assert sum(bool(step.shown) for step in STEPS) >= 9


def test_a_line_that_was_not_printed_is_missing_and_so_is_one_in_the_wrong_place() -> None:
    printed = "first   line of 12\nsecond line\n"
    assert tour.missing_lines("first line of ...\nsecond ...\n", printed) == []
    assert tour.missing_lines("third\n", printed) == ["third"]
    assert tour.missing_lines("second line\nfirst line\n", printed) == ["first line"]


def test_a_failing_command_is_not_passed_over(tmp_path: Path) -> None:
    shell = tour.Shell(tmp_path, {"PATH": "/usr/bin:/bin"})
    try:
        assert shell.run("cd /; x=5") == "\n"
        assert shell.run('echo "$PWD $x"') == "/ 5\n"
        with pytest.raises(tour.TourFailed, match="no-such-program"):
            shell.run("no-such-program\ntrue")
    finally:
        shell.close()


def test_the_recording_shows_the_page_as_it_is() -> None:
    header, *events = map(json.loads, tour.RECORDING.read_text(encoding="utf-8").splitlines())
    assert header["version"] == 2
    assert header["env"]["steps"] == tour.fingerprint(STEPS), "stale; run `make servers` and `python docs/tour.py`"
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    seen = "".join(text for _, kind, text in events if kind == "o").replace("\r\n", "\n")
    for step in STEPS:
        assert tour.missing_lines(step.shown, seen) == []
    assert not [word for word in ("/tmp/", str(ROOT)) if word in seen]
