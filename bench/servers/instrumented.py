"""foretool that counts itself on request: `python -P bench/servers/instrumented.py COUNTS serve ...`.

Each SIGUSR1 adds a line of JSON to the file COUNTS: the tasks of the event loop and the objects that the garbage
collector knows, which the operating system cannot see. The words after COUNTS are foretool's own command line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from foretool.server import cli


def count(path: Path) -> None:
    """Add a line of counts to the file."""
    counts = {"pid": os.getpid(), "tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(counts) + "\n")


def main() -> None:
    """Run foretool, and count at each SIGUSR1."""
    path = Path(sys.argv.pop(1))

    def on_signal(number: int, frame: FrameType | None) -> None:
        count(path)

    signal.signal(signal.SIGUSR1, on_signal)
    cli.main()


if __name__ == "__main__":
    main()
