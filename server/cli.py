"""The command `foretool`: where it starts, and `serve` without anything that `serve` does not need.

The other commands are in `commands/`, on click and rich, which serving never imports: click alone would take a tenth of
the time to the first list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foretool.server.config.loader import Config

WRONG = 1
"""Exit status when something is wrong."""
USAGE = 2
"""Exit status for a wrong command line or config."""
INTERRUPTED = 130


class ServeOptions(NamedTuple):
    """The options of `foretool serve`."""

    config: Path | None = None
    profile: str = ""
    http: str | None = None
    """Address to serve on instead of stdio; "" is the setting `bind`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out one command line and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        sys.exit(_run(arguments))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("FORETOOL_TRACEBACK"):
            raise
        sys.exit(complain(_bug(error), WRONG))


def _run(arguments: Sequence[str]) -> int:
    options = plain_serve(arguments)
    if options is not None:
        return serve(options)
    if plain_hint(arguments):
        from foretool.server import hint

        return hint.main(arguments)
    from foretool.server.commands.group import run

    return run(arguments)


def complain(message: str, status: int = USAGE) -> int:
    """Say on one line of stderr what is wrong; returns the exit status."""
    sys.stderr.write(f"foretool: {' '.join(message.split())}\n")
    return status


def _bug(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    # Not its message: only known errors are known to name no secret.
    return f"internal error: {type(error).__name__}{place}; set FORETOOL_TRACEBACK=1 to see it all, and report it"


# serve


def plain_serve(arguments: Sequence[str]) -> ServeOptions | None:
    """The options of a flawless `serve`; None for anything else, which click then reads, or explains."""
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--config", "--profile", "--http"):
            return None
        if not equals:
            # As click reads it: the next word is the value, but `--http` may stand alone before another option.
            if rest and not (name == "--http" and rest[0].startswith("-")):
                value = rest.pop(0)
            elif name != "--http":
                return None
        found[name] = value
    config = Path(found["--config"]) if "--config" in found else None
    return ServeOptions(config, found.get("--profile", ""), found.get("--http"))


def plain_hint(arguments: Sequence[str]) -> bool:
    """Whether this is `foretool hint` as a hook calls it, with nothing for click to read or explain."""
    match list(arguments):
        case ["hint"] | ["hint", "--config", _]:
            return True
        case ["hint", option]:
            return option.startswith("--config=")
        case _:
            return False


def serve(options: ServeOptions) -> int:
    """Serve until the client has gone or we are asked to end; returns the exit status."""
    from foretool.server.config import loader as configs

    try:
        config = configs.load(existing(options.config or configs.default_config()))
        _check(options, config)
    except configs.ConfigError as error:
        return complain(str(error))

    from foretool.server import app
    from foretool.server.system import logs
    from foretool.storage.store import StorageError

    logs.begin(config)
    app.report(config)
    try:
        if options.http is not None:
            return _serve_http(config, options.http)
        app.run_stdio(config, options.profile)
    except StorageError as error:
        return complain(config.redact(str(error)), WRONG)
    return 0


def _serve_http(config: Config, address: str) -> int:
    from foretool.server import app
    from foretool.server.transports.client.http import EdgeError

    try:
        app.run_http(config, address)
    except EdgeError as error:
        return complain(str(error))
    return 0


def _check(options: ServeOptions, config: Config) -> None:
    """Raises `ConfigError` for options that this config has nothing for."""
    from foretool.server.config.loader import ConfigError, host_and_port

    check_profile(options.profile, config)
    if options.http is None:
        return
    if options.profile:
        raise ConfigError(
            f"--profile: over HTTP every profile has its own address, /mcp/{options.profile}; leave it out"
        )
    try:
        host_and_port(options.http or config.settings.bind)
    except ValueError as error:
        raise ConfigError(f"--http: {error}, found {options.http!r}") from None


def check_profile(profile: str, config: Config) -> None:
    """Raises `ConfigError` if there is no such profile."""
    from foretool.server.config.loader import ConfigError

    if profile not in config.profiles:
        known = ", ".join(name for name in config.profiles if name) or "none"
        raise ConfigError(f"--profile: {config.path} has no profile {profile!r}; it has: {known}")


def existing(path: Path) -> Path:
    """`path` if there is something. Raises `ConfigError` saying how to make a config."""
    from foretool.server.config.loader import ConfigError

    if not path.exists():
        example = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'
        raise ConfigError(f"{path}: no such file; make it ({example}), or name your client's file with --config")
    return path
