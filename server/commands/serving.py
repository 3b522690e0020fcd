"""Runs `foretool serve` without click and rich, which alone would take a tenth of the time to the first list.

`plain_serve` reads a correct command line. Everything else goes to click in `serve.py`, which explains what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from foretool.server.commands.exit import complain
from foretool.server.config.addresses import parse_address
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, load

ON_TERMINAL = (
    "foretool serve talks to the MCP client that starts it. It now waits for that client's messages on this terminal;"
    " press Ctrl-C to end it.\n"
    "To set up your clients, run `foretool init`; to check your servers, run `foretool doctor`.\n"
)
"""What `serve` says to a person who types it."""


class ServeOptions(NamedTuple):
    """The options of `foretool serve`."""

    config: Path | None = None
    profile: str = ""
    http: str | None = None
    """Address to serve on, "" for the setting `bind`; None to serve on stdio."""


def plain_serve(arguments: Sequence[str]) -> ServeOptions | None:
    """Read a correct `serve` command line. Returns None for any other, which is left to click."""
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--config", "--profile", "--http"):
            return None
        if not equals:
            # As in click, the next word is the value, but `--http` may stand alone before another option.
            if rest and not (name == "--http" and rest[0].startswith("-")):
                value = rest.pop(0)
            elif name != "--http":
                return None
        found[name] = value
    config = Path(found["--config"]) if "--config" in found else None
    return ServeOptions(config, found.get("--profile", ""), found.get("--http"))


def serve(options: ServeOptions) -> int:
    """Serve until the client leaves or a signal arrives. Returns the exit status."""
    try:
        config = load(options.config)
        _check_options(options, config)
        if options.http is None and sys.stdin is not None and sys.stdin.isatty():
            sys.stderr.write(ON_TERMINAL)

        import asyncio

        from foretool.server import reload
        from foretool.server import serve as serving
        from foretool.server.system import logs

        logs.start_logging(config)
        reload.report_place(config)
        reload.report_problems(config)
        if options.http is not None:
            asyncio.run(serving.serve_http(config, options.http))
        else:
            asyncio.run(serving.serve_stdio(config, options.profile))
    except ConfigError as error:
        return complain(str(error))
    return 0


def _check_options(options: ServeOptions, config: Config) -> None:
    """Raise `ConfigError` for options that do not fit this config."""
    config.require_profile(options.profile)
    if options.http is None:
        return
    if options.profile:
        raise ConfigError(
            f"--profile: over HTTP every profile has its own address, /mcp/{options.profile}; leave out --profile"
        )
    try:
        parse_address(options.http or config.settings.bind)
    except ValueError as error:
        raise ConfigError(f"--http: {error}, found {options.http!r}") from None
