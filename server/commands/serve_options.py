"""Reads a `foretool serve` command line without click. Every window imports this file, so it imports nothing else."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def read_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """Read a correct `serve` command line. Returns None for any other, which is left to click."""
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--alone" and not equals:
            found[name] = ""
            continue
        if name not in ("--config", "--profile", "--http"):
            return None
        if not equals:
            # As in click, the next word is the value, but `--http` may stand alone before another option.
            if rest and not (name == "--http" and rest[0].startswith("-")):
                value = rest.pop(0)
            elif name != "--http":
                return None
        found[name] = value
    return found
