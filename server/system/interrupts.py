"""Ctrl-C in a command: `KeyboardInterrupt` is raised where it ends the command, and the exit status says so.

Python alone loses some of them. An import of a native library turns one into an `ImportError`, and a destructor or a
callback of C code prints a traceback and goes on. One that comes right before a prompt starts to read waits for Enter.
So an import is let to its end, and a thread repeats a signal that nothing has acted on.

While files are written that belong together, which takes milliseconds, Ctrl-C waits, and so do requests to end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, get_ident, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

T = TypeVar("T")

_REPEAT_S: Final = 0.05
_IMPORT_S: Final = 2.0
"""How long an import may go on: most of them pass an interrupt on."""
_IMPORTING: Final = "<frozen importlib._bootstrap>"
_ONE: Final = bytes([signal.SIGINT])
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a program."""


class Interrupted(KeyboardInterrupt):
    """The user ended the program while files were written; the message says what holds now."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
        """The signal."""


class Interrupts:
    """Handles Ctrl-C for this process."""

    def __init__(self) -> None:
        self.was_pressed = False
        """Whether the user pressed Ctrl-C."""
        self._is_raised = False
        """Whether the last one was raised in the main thread."""
        self._first = 0.0
        """When it was pressed first."""
        self._main = get_ident()
        self._hook = sys.unraisablehook
        self._reads = self._writes = -1

    def install(self) -> None:
        """Take Ctrl-C from now on; call it in the main thread."""
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._interrupt)
        sys.unraisablehook = self._take_unraisable
        Thread(target=self._repeat, name="foretool-interrupts", daemon=True).start()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self.was_pressed, self._first = True, self._first or now
        if now - self._first < _IMPORT_S and _is_importing(frame):
            self._ask_again()
            return
        self._is_raised = True
        raise KeyboardInterrupt

    def take_held(self) -> None:
        """Record a Ctrl-C that came while it was held back, so that it is not raised a second time."""
        self.was_pressed = self._is_raised = True

    def _ask_again(self) -> None:
        """Have the signal sent again soon."""
        self._is_raised = False
        os.write(self._writes, _ONE)

    def _take_unraisable(self, found: UnraisableHookArgs) -> None:
        if issubclass(found.exc_type, KeyboardInterrupt):
            self._ask_again()
        else:
            self._hook(found)

    def _repeat(self) -> None:
        """Send the signal again, as long as one was pressed and nothing was raised."""
        while number := os.read(self._reads, 1):
            if number != _ONE:
                continue
            while not self._is_raised and signal.getsignal(signal.SIGINT) == self._interrupt:
                time.sleep(_REPEAT_S)
                if not self._is_raised:
                    signal.pthread_kill(self._main, signal.SIGINT)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run this on an event loop as `asyncio.run` does: Ctrl-C cancels it, so that it ends its processes first."""
    import asyncio

    taken = signal.getsignal(signal.SIGINT)
    if not isinstance(getattr(taken, "__self__", None), Interrupts):
        return asyncio.run(work)
    # The event loop only takes Ctrl-C where nobody else does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, taken)


@contextmanager
def hold_signals() -> Iterator[list[int]]:
    """Yield a list that gets the signals which would have ended the program meanwhile. In another thread than the main
    one there is nothing to hold: Python acts on signals in that one alone."""
    held: list[int] = []
    if current_thread() is not main_thread():
        yield held
        return

    def note(number: int, frame: FrameType | None) -> None:
        held.append(number)

    taken = {each: signal.getsignal(each) for each in _ENDING}
    for each, handler in taken.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, note)
    try:
        yield held
    finally:
        if signal.SIGINT in held and isinstance(owner := getattr(taken[signal.SIGINT], "__self__", None), Interrupts):
            owner.take_held()
        for each, handler in taken.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False
