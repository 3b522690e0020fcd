"""Stands for a launcher such as npx: it works for a while, then starts the server whose command follows.

`slow_launcher.py FOLDER SECONDS COMMAND...`. While it works, FOLDER holds the file `half`. Asked to end, it takes that
back, which takes a moment. When the work is done, FOLDER holds `whole`.
"""

import os
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType

TAKES_BACK_S = 3.0
"""Longer than a server has to end after SIGTERM."""


def write_npx(folder: Path, seconds: float, *command: str) -> str:
    """Write a program called npx that works for so long before it starts this command; return its path."""
    npx = folder / "npx"
    words = (sys.executable, __file__, str(folder), str(seconds), *command)
    npx.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    npx.chmod(0o755)
    return str(npx)


def main() -> None:
    folder, seconds, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    half = folder / "half"
    half.touch()

    def take_back(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        time.sleep(TAKES_BACK_S)
        half.unlink()
        sys.exit(1)

    signal.signal(signal.SIGTERM, take_back)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(200_000))
        time.sleep(0.01)
    half.rename(folder / "whole")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
