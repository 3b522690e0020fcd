"""Exit statuses, and the one line on stderr that explains a failure."""

import sys

WRONG = 1
"""Something is wrong, for example a broken server or an unknown tool."""
USAGE = 2
"""The command line or the config cannot be used."""
INTERRUPTED = 130


def complain(message: str, status: int = USAGE) -> int:
    """Write one line to stderr that says what is wrong. Returns the exit status."""
    line = " ".join(message.split())
    # A name in the message may hold escape sequences.
    line = line if line.isprintable() else "".join(each if each.isprintable() else " " for each in line)
    sys.stderr.write(f"{_wrapped(f'foretool: {line}')}\n")
    return status


def _wrapped(line: str) -> str:
    """Break a line between words where a terminal would break it within one."""
    if not sys.stderr.isatty():
        return line
    # A window imports this file, so nothing that takes memory comes before there is something to say.
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, 24)
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
