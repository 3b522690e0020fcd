"""Says what is wrong with servers that were started once: the cause, the last lines of stderr, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.checks.programs import is_missing
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.diagnosis import Finding, UpstreamCheck, note, problem, warning
from foretool.server.trust.held_words import say_waiting
from foretool.server.upstreams.causes import Cause, find_cause, last_lines, telling_line
from foretool.server.upstreams.missing_variables import advise_server
from foretool.storage.opening import open_existing_store
from foretool.storage.stores import StorageError

_HTTP_STATUS: Final = (
    (r"run `foretool login", Code.SIGN_IN),
    (r"wants another Authorization|credentials in headers do not suffice|HTTP 40[13]\b", Code.CREDENTIAL_REFUSED),
    (r"nothing is served there|takes no POST there|HTTP 40[45]\b|no content type", Code.ADDRESS_WRONG),
)
_OPEN_CAUSES: Final = (Code.SERVER_FAILED, Code.NETWORK_DOWN, Code.SERVER_SLOW, Code.NOT_MCP)
"""Causes behind which a variable may be missing."""


def check_upstreams(upstreams: Iterable[UpstreamCheck], config: Config, timeout_s: float) -> Iterator[Finding]:
    """Report servers that failed, and what is wrong with the lists of those that did not."""
    for each in upstreams:
        server = config.servers[each.upstream]
        if not each.is_well and not is_missing(server):
            yield _describe_failure(each, server, timeout_s)
        elif each.is_well and each.starts > 1:
            what = f"{each.upstream}: failed beside other servers and started when it was alone"
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


def check_held(config: Config) -> Iterator[Finding]:
    """Report what servers have changed and nobody has approved."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        for name, (_, text) in say_waiting(store.approvals.undecided(), config.servers).items():
            what, _, do = text.partition("; see ")
            do = f"look at it and approve or block it: {do}"
            yield warning("upstream", Code.CHANGE_HELD, what, do, name)


def _describe_failure(check: UpstreamCheck, server: Server, timeout_s: float) -> Finding:
    cause = _remote_cause(check, server) if server.type != "stdio" else _local_cause(check, server, timeout_s)
    lines = last_lines(check.stderr)
    twice = ", also when it was started alone" if check.starts > 1 else ""
    what = f"{check.upstream}: {cause.what}{twice}"
    # What a program says of its network is a guess; a package that does not exist has no other cause.
    is_open = cause.code in (*_OPEN_CAUSES, Code.CREDENTIAL_MISSING) and "of this machine" not in cause.what
    do = (is_open and advise_server(server, check.stderr, check.error)) or cause.do
    return problem("upstream", cause.code, what, do, check.upstream, lines)


def _local_cause(check: UpstreamCheck, server: Server, timeout_s: float) -> Cause:
    said = check.error.partition("; last stderr line: ")[0]
    found = find_cause(check.stderr, said)
    if "within" in said and found is None:
        seconds = max(120, 4 * timeout_s)
        if check.skipped_lines:
            do = "it writes something else than MCP to stdout: check its command and args"
            return Cause(Code.NOT_MCP, f"{said}, and {check.skipped_lines} lines that are not MCP", do)
        do = f"its first start may download packages: foretool doctor --timeout {seconds:g}"
        return Cause(Code.SERVER_SLOW, said, do)
    if found is not None:
        return found
    told = telling_line(check.stderr)
    if not told and re.match(r"exited with code 0|closed its output", said):
        do = "its command may be no MCP server, or needs a word more in args (such as stdio)"
        return Cause(Code.NOT_MCP, f"{said} before it had answered", do)
    because = f": {told}" if told and told not in said else ""
    by_hand = f"start {server.address!r} with its args by hand to see why, or disable it"
    return Cause(Code.SERVER_FAILED, f"{said}{because}", by_hand)


def _remote_cause(check: UpstreamCheck, server: Server) -> Cause:
    code = next((code for pattern, code in _HTTP_STATUS if re.search(pattern, check.error)), None)
    if code is Code.SIGN_IN:
        what = check.error.partition(": run `foretool login")[0]
        return Cause(code, what, f"run `foretool login {server.name}` in a terminal")
    if code is not None:
        do = "check its url" if code is Code.ADDRESS_WRONG else "check its headers, or make a new token"
        return Cause(code, check.error, do)
    if "within" in check.error:
        return Cause(Code.SERVER_SLOW, check.error, "check its url, and that this machine can reach it")
    return Cause(Code.NETWORK_DOWN, check.error, "check its url, and that this machine can reach it")
