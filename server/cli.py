"""The entry point of `foretool`: `serve` and `hint` start without click, every other command line goes to click."""

from __future__ import annotations

import gc
import os
import sys

from foretool.server.commands.exit import INTERRUPTED, WRONG, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVING = ("serve", "hint")
"""They handle signals themselves."""
_RANKING = "search"
"""The command that makes a whole proxy with its encoder, ranks once and ends. A tenth of its time went into looking for
garbage, of which there is none."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit. Without `arguments` they are those of the process, which is ours then."""
    given = sys.argv[1:] if arguments is None else arguments
    # Whoever started us may have closed them. What is opened next would take their numbers, and be written to.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    if not os.environ.get("HOME", "/").startswith("/"):
        del os.environ["HOME"]  # Python would take the root folder for one that is empty; without it, the user's own
    try:
        if arguments is not None or (given and given[0] in _SERVING):
            sys.exit(_run(given))
        _leave(_run_interruptible(given))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # the one boundary of the process
        sys.exit(_complain_of_bug(error))


def _run_interruptible(arguments: Sequence[str]) -> int:
    """Run one command line that Ctrl-C ends whatever it is at. Returns the exit status."""
    from foretool.server.system.interrupts import Interrupts  # a window and the hook do without

    interrupts = Interrupts()
    interrupts.install()
    if arguments and arguments[0] == _RANKING:
        gc.disable()
    try:
        status = _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the one boundary of the process
        status = INTERRUPTED if interrupts.was_pressed else _complain_of_bug(error)
    return INTERRUPTED if interrupts.was_pressed else status


def _complain_of_bug(error: Exception) -> int:
    if os.environ.get("FORETOOL_TRACEBACK"):
        raise error
    return complain(_describe_bug(error), WRONG)


def _leave(status: int) -> None:
    """Exit without taking anything down: the store is closed by now, and what was said is written here. Python would
    swallow a Ctrl-C that comes meanwhile."""
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
        if not {"--install", "--remove"} & {*arguments}:
            from foretool.server.commands.group import run

            run(arguments)  # says what is wrong with the command line of a hook
            return 0  # a hook that ends with 2 would stop every prompt of its client
    if arguments and arguments[0] == "serve":
        from foretool.server.commands import window

        status = window.serve_window(arguments)
        if status is not None:
            return status
        gc.disable()  # `serve` collects again once clients are answered: looking for garbage costs a tenth of the start
        if (options := window.read_options(arguments)) is not None:
            from foretool.server.commands import serving

            return serving.serve(serving.options_of(options))
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
