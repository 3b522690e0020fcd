"""Which processes of a config the benchmark of windows counts."""

from __future__ import annotations

import subprocess
import sys

from bench.proxy.windows import processes

FORKS = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"


def test_a_child_that_has_not_begun_its_own_program_is_no_process_of_its_own() -> None:
    words = [sys.executable, "-c", FORKS, "of-this-test-alone"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        assert processes("of-this-test-alone") == [parent.pid]
        for pid in {parent.pid, *pids}:
            subprocess.run(["kill", str(pid)], check=True)
