"""Runs `foretool serve` without click and rich, which alone would take a tenth of the time to the first list.

`window` reads a correct command line. Everything else goes to click in `serve.py`, which explains what is wrong.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from foretool.server import packs
from foretool.server.config.addresses import parse_address
from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, load
from foretool.server.local.opening import Opening

ON_TERMINAL = (
    "foretool serve talks to the MCP client that starts it. It now waits for that client's messages on this terminal;"
    " press Ctrl-C to end it.\n"
    "To set up your clients, run `foretool init`; to check your servers, run `foretool doctor`.\n"
)
"""What `serve` says to a person who types it."""

_LOG_NAME: Final = "serve.log"
"""The log of the proxies that windows share, beside their sockets: the stderr of a window ends with the window."""


class ServeOptions(NamedTuple):
    config: Path | None = None
    profile: str = ""
    http: str | None = None
    """Address to serve on, "" for the setting `bind`; None to serve on stdio."""
    alone: bool = False
    """Share no proxy with other windows."""


def options_of(found: Mapping[str, str]) -> ServeOptions:
    """Return the options from what `window.read_options` has read."""
    config = Path(found["--config"]) if "--config" in found else None
    return ServeOptions(config, found.get("--profile", ""), found.get("--http"), "--alone" in found)


def shares(found: Mapping[str, str]) -> bool:
    """Return whether windows with these options may share a proxy; False also for a config that cannot be read."""
    try:
        config = load(options_of(found).config)
    except ConfigError:
        return False
    return config.settings.share and config.named_by != "project_config"


def _limit_threads() -> None:
    """Let numpy use one thread, should it be loaded later: more of them would take calls their processor."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def serve(options: ServeOptions, opening: Opening | None = None) -> int:
    """Serve until the client leaves or a signal comes; return the exit status. `opening`: what the client said
    before."""
    _limit_threads()
    try:
        config = load(options.config)
        _check_options(options, config)
        if options.http is None and sys.stdin is not None and sys.stdin.isatty():
            sys.stderr.write(ON_TERMINAL)

        import asyncio

        from foretool.server import serve as serving

        _start_logging(config)
        if options.http is not None:
            make_page = packs.load_part(packs.MAKE_PAGE)
            asyncio.run(serving.serve_http(config, options.http, make_page(config) if make_page else None))
        else:
            asyncio.run(serving.serve_stdio(config, options.profile, opening))
    except ConfigError as error:
        return _refuse_config(error)
    return 0


def _refuse_config(error: ConfigError) -> int:
    from foretool.server.commands.group import refuse_config  # click, of which serving takes nothing

    return refuse_config(error)


def _start_logging(config: Config) -> None:
    """Log from now on, first which file is served, and what is wrong with it."""
    from foretool.server import reload
    from foretool.server.system import logs

    logs.start_logging(config)
    reload.report_place(config)
    reload.report_problems(config)


def run_shared_proxy(options: ServeOptions, folder: str, first: socket.socket, lock: int) -> int:
    """Serve windows as the process that one of them, `first`, has started. Returns the exit status.

    `folder`: that of the sockets. `lock`: a file that is closed as soon as other windows find us. What is wrong with
    the config goes to the stderr of the first window, which ends with the same status.
    """
    _limit_threads()
    first = socket.socket(fileno=first.detach())  # the window's is of the plain kind, which asyncio does not take
    try:
        config = load(options.config)
        _check_options(options, config)
        if not config.settings.share:
            first.sendall(b'{"foretool":1,"error":""}\n')
            return 0

        import asyncio

        from foretool.server import serve as serving

        _start_logging(config)

        def let_others_in() -> None:
            os.close(lock)
            _log_to_file(folder)

        asyncio.run(serving.serve_windows(config, options.profile, first, let_others_in))
    except ConfigError as error:
        status = _refuse_config(error)
        with contextlib.suppress(OSError):
            first.sendall(b'{"foretool":1,"exit":%d}\n' % status)
        return status
    return 0


def _log_to_file(folder: str) -> None:
    """Let stderr go to the log of shared proxies, and no longer to the first window, which others outlive."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(Path(folder) / _LOG_NAME, flags, 0o600)
    except OSError:
        file = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    sys.stderr.flush()
    os.dup2(file, 2)
    os.close(file)


def _check_options(options: ServeOptions, config: Config) -> None:
    """Raise `ConfigError` for options that do not fit this config."""
    config.require_profile(options.profile)
    if options.http is None:
        return
    if options.profile:
        raise ConfigError(
            f"--profile: over HTTP every profile has its own address, /mcp/{options.profile}; leave out --profile",
            Code.OPTION_WRONG,
        )
    try:
        parse_address(options.http or config.settings.bind)
    except ValueError as error:
        raise ConfigError(f"--http: {error}, found {options.http!r}", Code.OPTION_WRONG) from None
