"""Exit statuses, and the one line on stderr that explains a failure."""

import sys

WRONG = 1
"""Something is wrong, for example a broken server or an unknown tool."""
USAGE = 2
"""The command line or the config cannot be used."""
INTERRUPTED = 130
_JOINT = "\ue000"
"""Stands for the blanks of a command while lines are broken; no text of ours has this character."""
_SECOND = "\ue001"
"""Stands behind each letter that takes two columns of a terminal while lines are broken, as in Chinese and Japanese."""


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

    return fold(line, max(shutil.get_terminal_size().columns, 24))


def fold(text: str, width: int, rest: str = "", *, breaks_words: bool = False) -> str:
    """Break a text between words, and in no command of ours that fits a line. `rest`: begins each line but the first;
    `breaks_words`: break a word that is wider than a line."""
    import textwrap
    import unicodedata

    if not text.isascii():
        text = "".join(each + _SECOND * (unicodedata.east_asian_width(each) in "WF") for each in text)
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=rest, break_long_words=breaks_words, break_on_hyphens=False
    )  # fmt: skip
    return part_commands(wrapper.fill(join_commands(text, width - len(rest))).replace(_SECOND, ""))


def join_commands(text: str, width: int) -> str:
    """Make each command of ours in a text one word, if it is not wider than a line."""
    import re

    command = r"foretool(?: [a-z]+(?![\w']))?(?: (?:--?[a-z-]*(?:[ =][A-Z]+\b)?|[A-Z]{2,}\b|\d+\b|'[^']*'))*"
    return re.sub(command, lambda found: found[0].replace(" ", _JOINT if len(found[0]) <= width else " "), text)


def part_commands(text: str) -> str:
    """Take back what `join_commands` has done."""
    return text.replace(_JOINT, " ")
