"""Says what is wrong with servers that were started once: the cause, the last lines of stderr, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.checks.programs import is_missing
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config
from foretool.server.diagnosis import Finding, Repair, UpstreamCheck, note, problem, warning
from foretool.server.trust.approvals import say_waiting
from foretool.server.upstreams.causes import Cause, last_lines
from foretool.server.upstreams.failures import explain_failure
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_existing_store

_HOPELESS: Final = (Code.PACKAGE_MISSING, Code.MODULE_MISSING, Code.FILE_MISSING)
"""What no later start changes, unless somebody corrects the entry or installs something."""


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
