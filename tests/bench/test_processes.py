"""What the operating system says of a process, and how measurements are summed up."""

from __future__ import annotations

import os

from bench import processes


def test_what_the_system_says_of_this_process() -> None:
    rss, pss = processes.memory_mib(os.getpid())
    assert rss >= pss > 1
    assert processes.open_files(os.getpid()) >= 3
    assert processes.threads(os.getpid()) >= 1


def test_spread() -> None:
    assert processes.spread([0.3, 0.1, 0.2]) == {"median": 0.2, "least": 0.1, "all": [0.3, 0.1, 0.2]}
