"""What `foretool doctor` finds: one finding per check, and one report per upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretool.server.config.codes import Code
from foretool.server.recording.notes import ProxyJob
from foretool.storage.records import Era

Area = Literal["config", "client", "environment", "storage", "upstream", "names", "text"]
Severity = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Repair:
    """One change that `foretool doctor --fix` can make, and take back."""

    kind: Literal["protect", "command", "inherit", "disable", "unregister", "register"]
    """protect: let only its user reach a file. command: start servers by the full path of their program. inherit: pass
    variables on to a server. disable: switch a server off. unregister: take a second entry of foretool out of a
    client's file. register: write what starts foretool into an entry of a client that cannot start it."""
    servers: tuple[str, ...] = ()
    path: str = ""
    """The file to change where that is not the config, or the program to start."""
    mode: int = 0
    """The permissions of a protected file."""
    names: tuple[str, ...] = ()
    """The variables, or the keys that lead to the entry in the client's file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    area: Area
    severity: Severity
    what: str
    do: str = ""
    """What to do about it; "" if nothing is wrong."""
    code: Code | None = None
    """Names its paragraph in `docs/errors.md`; None if nothing is wrong."""
    server: str = ""
    """The server that it is about, or ""."""
    lines: tuple[str, ...] = ()
    """Last lines that a failed server wrote to stderr, the oldest first."""
    repair: Repair | None = None
    """What `foretool doctor --fix` would change; None if only a person can decide what to do."""


@dataclass(frozen=True, slots=True)
class UpstreamCheck:
    """What one upstream showed when it was started and asked for its tools."""

    upstream: str
    address: str
    is_well: bool
    era: Era | None = None
    version: str = ""
    """Protocol version that it chose."""
    server: str = ""
    """Name and version that it states."""
    tools: int = 0
    lists_none: bool = False
    """Whether it declares tools and lists none."""
    tokens: int = 0
    """Of the definitions of all its tools."""
    dropped: tuple[str, ...] = ()
    """Tools that cannot be used, each with the reason."""
    ready_ms: float = 0.0
    """From its start until the handshake was done."""
    listed_ms: float = 0.0
    """From its start until its tools were known."""
    skipped_lines: int = 0
    error: str = ""
    stderr: tuple[str, ...] = ()
    starts: int = 1
    """How often it was started: twice if it failed beside others."""


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """The tools of all servers, and the list that a client gets first."""

    servers: int
    """All that are enabled, those with a broken entry too."""
    well: int
    """How many started and listed their tools."""
    tools: int
    tokens: int
    """Tokens of the definitions of all these tools."""
    listed_tools: int | None
    """Tools in the list that a client gets from foretool first; None if the storage file cannot be used."""
    listed_tokens: int | None
    lists_all: bool = False
    """Whether that list has all tools."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings."""

    findings: tuple[Finding, ...]
    upstreams: tuple[UpstreamCheck, ...]
    summary: TokenSummary
    failing_jobs: tuple[ProxyJob, ...] = ()
    """What running proxies cannot do in the background at present; each is among the findings too."""

    @property
    def is_well(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def ok(area: Area, what: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(area, "ok", what)


def note(area: Area, code: Code, what: str, do: str = "", server: str = "", *, repair: Repair | None = None) -> Finding:
    """Return a finding that users may want to know."""
    return Finding(area, "note", what, do, code, server, repair=repair)


def warning(area: Area, code: Code, what: str, do: str, server: str = "", *, repair: Repair | None = None) -> Finding:
    """Return a finding of something that works and should not stay."""
    return Finding(area, "warning", what, do, code, server, repair=repair)


def problem(
    area: Area, code: Code, what: str, do: str, server: str = "", lines: tuple[str, ...] = (), *,
    repair: Repair | None = None,
) -> Finding:  # fmt: skip
    """Return a finding of something that does not work."""
    return Finding(area, "error", what, do, code, server, lines, repair)
