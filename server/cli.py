"""The entry point of `foretool`: `serve` and `hint` start without click, every other command line goes to click."""

from __future__ import annotations

import gc
import os
import sys

from foretool.server.commands.exit import INTERRUPTED, WRONG, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_RANKING = "search"
"""The command that makes a whole proxy with its encoder, ranks once and ends. A fifth of its time went into looking for
garbage, of which there is none, and into taking everything down."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    ranks = bool(arguments) and arguments[0] == _RANKING
    if ranks:
        gc.disable()
    try:
        status = _run(arguments)
        if ranks:
            _leave(status)
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("FORETOOL_TRACEBACK"):
            raise
        sys.exit(complain(_describe_bug(error), WRONG))


def _leave(status: int) -> None:
    """Exit without taking anything down: the store is closed by now, and what was said is written here."""
    try:  # contextlib takes memory
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # who read us has gone
        pass
    os._exit(status)


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "hint":
        from foretool.server import hint

        hook = hint.plain_hint(arguments)
        if hook is not None:
            # The store is closed and the text is out: taking everything down takes longer than the ranking.
            os._exit(hint.main(hook))
    if arguments and arguments[0] == "serve":
        from foretool.server.commands import window

        status = window.serve_window(arguments)
        if status is not None:
            return status
        gc.disable()  # `serve` collects again once clients are answered: looking for garbage costs a tenth of the start
    from foretool.server.commands.serving import plain_serve, serve

    options = plain_serve(arguments)
    if options is not None:
        return serve(options)
    from foretool.server.commands.group import run

    return run(arguments)


def _describe_bug(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""  # noqa: PTH119
    # Without the message of the error, which may contain a secret.
    return f"internal error: {type(error).__name__}{place}; set FORETOOL_TRACEBACK=1 for the traceback and report it"
