"""foretool that times each step of its event loop: `python -P bench/servers/watched.py STEPS serve ...`.

A line of JSON is added to the file STEPS for each step that took at least `LEAST_MS` of processor time on the loop's
own thread, so that other processes of a busy machine do not count: when it ended (seconds since 1970), its
milliseconds, and what ran. The words after STEPS are foretool's own command line. With `--hurry` before them, old
records are deleted right from the start instead of after two minutes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

from foretool.server import cli
from foretool.server.recording import retention

LEAST_MS: Final = 2.0


def watch(file: TextIO) -> None:
    """Time every step from now on."""
    run = asyncio.Handle._run  # the one place that every step goes through

    def timed(handle: Any) -> None:
        started = time.thread_time()
        run(handle)
        took = 1e3 * (time.thread_time() - started)
        if took >= LEAST_MS:
            file.write(json.dumps([time.time(), round(took, 2), _describe(handle)]) + "\n")

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]


def _describe(handle: Any) -> str:
    """Return the name of the callback, or of the coroutine that it takes one step further."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", task))
    return str(getattr(callback, "__qualname__", callback))


def main() -> None:
    """Run foretool, and time its steps."""
    with Path(sys.argv.pop(1)).open("a", encoding="utf-8", buffering=1) as file:
        if sys.argv[1:2] == ["--hurry"]:
            del sys.argv[1]
            retention.SETTLED_S = 0.0  # type: ignore[misc]
        watch(file)
        cli.main()


if __name__ == "__main__":
    main()
