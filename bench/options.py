"""The command-line arguments that several benchmarks share."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection


def make_parser(module: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m module`, whose help is the module's docstring as it is written."""
    return ArgumentParser(f"python -m {module}", description=description, formatter_class=RawDescriptionHelpFormatter)


def add_foretool(parser: ArgumentParser) -> None:
    """Add `--foretool`, the command of the proxy to measure."""
    parser.add_argument("--foretool", help="the command; default: the one installed beside this Python")


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def split_names(parser: ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    """The comma-separated names of an option; a name that is not known ends the program with status 2."""
    names = text.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"{option}: {', '.join(sorted(unknown))} is not known; choose from {', '.join(known)}")
    return names
