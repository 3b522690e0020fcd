"""Files that have the system start `foretool serve --http` when the user logs in: systemd, launchd, Windows tasks."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.parsers.expat import ExpatError
from xml.sax.saxutils import escape

from msgspec import Struct

from foretool.server.config.environment import safe_path
from foretool.server.setup.clients import Machine
from foretool.server.setup.installation import Command

NAME: Final = "foretool"
LABEL: Final = "foretool.serve"
"""What launchd calls the service."""
VARIABLES: Final = "service.env"
"""The file beside the config with variables for the service (systemd): a service has none of a shell."""


class ServiceError(Exception):
    """The service cannot be described for this system; the message says why."""


class Service(Struct, frozen=True):
    """How one system starts foretool."""

    kind: str
    """`systemd`, `launchd` or `task`."""
    path: Path
    """The file that the system reads."""
    content: bytes
    start: tuple[Command, ...]
    """Commands that have the system read the file and start foretool."""
    stop: tuple[Command, ...]
    ask: Command
    """The command that tells whether it runs: its status is 0 then."""


def describe_service(machine: Machine, launch: Sequence[str], config: Path, path: str = "") -> Service:
    """Return the service of this system. `launch`: the program and its arguments. `path`: its PATH, in place of that of
    this shell. Raises `ServiceError`."""
    path = safe_path(path or machine.environ.get("PATH", ""))
    for word in (*launch, str(config), path):
        if not word.isprintable():
            raise ServiceError(f"{word!r} holds characters that no service file can; move it to another path")
    if machine.system == "darwin":
        return _launchd(machine, launch, path)
    if machine.system == "win32":
        return _task(machine, launch)
    return _systemd(machine, launch, config, path)


def path_in(content: bytes) -> str:
    """Return the PATH that the file of a service gives foretool, "" if it gives none or cannot be read."""
    if content.startswith(b"<?xml"):
        try:
            return str(plistlib.loads(content)["EnvironmentVariables"]["PATH"])
        except (ValueError, KeyError, TypeError, ExpatError):
            return ""
    found = re.search(rb'(?m)^Environment="PATH=(.*)"$', content)
    text = found[1].decode("utf-8", "replace") if found else ""
    return re.sub(r'\\(["\\])', r"\1", text).replace("%%", "%")


def _systemd(machine: Machine, launch: Sequence[str], config: Path, path: str) -> Service:
    if re.search(r"[\"'\\$]", launch[0]):
        raise ServiceError(f"systemd starts no program with quotes, $ or \\ in its path: {launch[0]}; move it")
    lines = [
        "[Unit]",
        "Description=foretool, one MCP server in front of many",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(_quoted(each) for each in launch)}",
        f"Environment={_quoted(f'PATH={path}', is_command=False)}",
        "# Variables that the config names, one NAME=value a line; chmod 600 it.",
        f"EnvironmentFile=-{_quoted(str(config.with_name(VARIABLES)), is_command=False, is_path=True)}",
        "Restart=on-failure",
        "RestartSec=2",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    unit = f"{NAME}.service"
    return Service(
        kind="systemd",
        path=machine.config / "systemd" / "user" / unit,
        content="\n".join(lines).encode(),
        start=(("systemctl", "--user", "daemon-reload"), ("systemctl", "--user", "enable", "--now", unit)),
        stop=(("systemctl", "--user", "disable", "--now", unit),),
        ask=("systemctl", "--user", "is-active", "--quiet", unit),
    )


def _quoted(word: str, *, is_command: bool = True, is_path: bool = False) -> str:
    """Write a word as systemd reads it (systemd.syntax(7), systemd.service(5)): `%` and, in commands, `$` are special.
    A path alone takes no quotes."""
    word = word.replace("%", "%%")
    if is_path:
        return word
    word = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{word.replace("$", "$$") if is_command else word}"'


def _launchd(machine: Machine, launch: Sequence[str], path: str) -> Service:
    file = machine.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    content = {
        "Label": LABEL,
        "ProgramArguments": list(launch),
        "EnvironmentVariables": {"PATH": path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Interactive",
        "StandardErrorPath": str(machine.home / "Library" / "Logs" / "foretool.log"),
        "Umask": 0o077,
    }
    return Service(
        kind="launchd",
        path=file,
        content=plistlib.dumps(content, sort_keys=False),
        start=(("launchctl", "load", "-w", str(file)),),
        stop=(("launchctl", "unload", "-w", str(file)),),
        ask=("launchctl", "list", LABEL),
    )


def _task(machine: Machine, launch: Sequence[str]) -> Service:
    file = machine.applications / NAME / "foretool-task.xml"
    arguments = " ".join(_windows_word(each) for each in launch[1:])
    text = f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>foretool, one MCP server in front of many</Description></RegistrationInfo>
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>3</Count></RestartOnFailure>
  </Settings>
  <Actions>
    <Exec><Command>{escape(launch[0])}</Command><Arguments>{escape(arguments)}</Arguments></Exec>
  </Actions>
</Task>
"""
    return Service(
        kind="task",
        path=file,
        content=text.replace("\n", "\r\n").encode("utf-16"),
        start=(("schtasks", "/Create", "/F", "/TN", NAME, "/XML", str(file)), ("schtasks", "/Run", "/TN", NAME)),
        stop=(("schtasks", "/End", "/TN", NAME), ("schtasks", "/Delete", "/F", "/TN", NAME)),
        ask=("schtasks", "/Query", "/TN", NAME),
    )


def _windows_word(word: str) -> str:
    """Write an argument as Windows programs split their command line."""
    if word and not re.search(r'[\s"]', word):
        return word
    return '"' + re.sub(r'(\\*)(?="|$)', lambda found: found[1] * 2, word).replace('"', '\\"') + '"'
