"""What `foretool doctor` finds: one finding per check, and one report per upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretool.storage.records import Era

Area = Literal["config", "environment", "storage", "upstream", "names", "text"]
Severity = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    area: Area
    severity: Severity
    what: str
    do: str = ""
    """What to do about it; "" if nothing is wrong."""


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
    tokens: int = 0
    """Estimated tokens of all its tools."""
    dropped: tuple[str, ...] = ()
    """Tools that cannot be used, each with the reason."""
    ready_ms: float = 0.0
    """From its start until the handshake was done."""
    listed_ms: float = 0.0
    """From its start until its tools were known."""
    skipped_lines: int = 0
    error: str = ""
    stderr: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings."""

    findings: tuple[Finding, ...]
    upstreams: tuple[UpstreamCheck, ...]

    @property
    def is_well(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)
