"""Which proxies on record still run."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time

import pytest

from foretool.server.system import processes
from foretool.server.system.processes import is_running, worker_command, worker_environment


def test_this_process_runs_and_one_that_ended_does_not() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert is_running(os.getpid(), time.time())
    assert not is_running(ended.pid, time.time())
    assert not is_running(2**40, time.time())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_a_younger_process_under_the_same_number_is_not_the_proxy() -> None:
    assert not is_running(os.getpid(), time.time() - 30 * 86_400)


def test_a_worker_reads_nothing_of_the_working_folder_and_gets_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "HF_HOME", "https_proxy", "FORETOOL_LLM_KEY"):
        monkeypatch.setenv(name, "x")
    assert worker_command("some.module", "word")[1:] == ("-P", "-m", "some.module", "word")
    found = worker_environment(("FORETOOL_*",), FORETOOL_STORAGE="/s")
    assert {"HOME", "PATH", "HF_HOME", "https_proxy", "FORETOOL_LLM_KEY"} <= found.keys()
    assert (found["FORETOOL_STORAGE"], "GITHUB_TOKEN" in found) == ("/s", False)
    assert "FORETOOL_LLM_KEY" not in worker_environment()


def test_it_is_the_user_of_the_system() -> None:
    found = processes.own_person()
    assert found.principal == f"user:{os.geteuid()}" and found.name == pwd.getpwuid(os.geteuid()).pw_name


def test_a_number_without_a_name_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 424_242)
    assert processes.own_person.__wrapped__().name == "424242"
