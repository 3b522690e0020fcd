"""Says why a server failed, with its code, and what the user can do about it.

Doctor, init, add, status, the log and the answers to failed calls all ask here, so that one failure has one code and
one piece of advice. What is advised is for the user alone: a model that may write files could follow it, and give a
secret to a hostile server.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from foretool.server.config.codes import Code
from foretool.server.config.servers import Server
from foretool.server.config.variables import safe_path
from foretool.server.setup.installation import program_hint
from foretool.server.transports.upstream.base import LAST_LINE
from foretool.server.upstreams.causes import START_WITH, Cause, find_cause, telling_line
from foretool.server.upstreams.connection import IN_PLACE, NO_REQUEST, NOT_MCP, UNREADABLE
from foretool.server.upstreams.cures import find_cure
from foretool.server.upstreams.missing_variables import advise_server, held_back, network_variables

_HTTP_STATUS: Final = (
    (r"run `foretool login", Code.SIGN_IN),
    (r"wants another Authorization|credentials in headers do not suffice|HTTP 40[13]\b", Code.CREDENTIAL_REFUSED),
    (r"nothing is served there|takes no POST there|HTTP 40[45]\b|and no reply$", Code.ADDRESS_WRONG),
)
_OPEN_CAUSES: Final = (
    Code.SERVER_FAILED, Code.NETWORK_DOWN, Code.SERVER_SLOW, Code.NOT_MCP, Code.CREDENTIAL_MISSING,
)  # fmt: skip
"""Causes behind which a variable may be missing."""
_NOT_FOUND: Final = re.compile(r"command '(?P<command>[^']*)' was not found")
_CERTIFICATE: Final = re.compile(r"a certificate of its clients|^client_cert ")
_UNLISTED: Final = re.compile(r"could not be listed|answered tools/list with")
_DOWNLOADING: Final = re.compile(r"was still downloading it after")
_NO_FOLDER: Final = re.compile(r"cwd .* is not a folder")


def explain_failure(
    server: Server, error: str, stderr: Sequence[str], *, skipped_lines: int = 0, timeout_s: float = 30.0
) -> Cause:
    """Return why a server failed. `error`: what foretool saw of it. `stderr`: its lines, the oldest first.
    `skipped_lines`: lines on its stdout that were not MCP. `timeout_s`: how long it had for its start."""
    cause = _explain(server, error, stderr, skipped_lines, timeout_s)
    match = re.search(rf"{START_WITH}(\w+)", cause.do)
    wanted = match[1] if match else ""
    if not wanted or shutil.which(wanted, path=safe_path(os.environ.get("PATH", os.defpath))):
        return cause
    do = f"{cause.do}; {wanted} is not installed on this machine: first {program_hint(wanted)}"
    return replace(cause, do=do)


def _explain(server: Server, error: str, stderr: Sequence[str], skipped_lines: int, timeout_s: float) -> Cause:
    is_local = server.type == "stdio"
    cause = _local_cause(server, error, stderr, skipped_lines, timeout_s) if is_local else _remote_cause(server, error)
    if advice := find_cure(server, cause, "\n".join((*stderr, error))):
        return Cause(cause.code, cause.what, advice, cause.certain)
    if not is_local:
        return cause
    # What a program says of its network is a guess; a package that does not exist has no other cause.
    is_open = cause.code in _OPEN_CAUSES and "of this machine" not in cause.what
    if is_open and (advice := advise_server(server, stderr, error)):
        return Cause(cause.code, cause.what, advice, cause.certain, held_back(server, stderr, error))
    return cause


def _local_cause(server: Server, error: str, stderr: Sequence[str], skipped_lines: int, timeout_s: float) -> Cause:
    said = error.partition(LAST_LINE)[0]
    if cause := _never_started(said) or _writes_no_mcp(said):
        return cause
    found = find_cause(stderr, said)
    if found is None and _UNLISTED.search(said):
        return _unlisted(said)
    if _DOWNLOADING.search(said):
        do = "run its command once in a terminal until the download has ended: it is large, or the network is slow"
        return Cause(Code.SERVER_SLOW, said, do)
    if "within" in said and found is None:
        seconds = max(120, 4 * timeout_s)
        if skipped_lines or NOT_MCP in said:
            do = "it writes something else than MCP to stdout: check its command and args"
            lines = f", and {skipped_lines} lines that are not MCP" if skipped_lines and NOT_MCP not in said else ""
            return Cause(Code.NOT_MCP, f"{said}{lines}", do)
        do = network_variables(server)
        do = f"{do}; else " if do else ""
        do += f"give it more time: foretool doctor {shlex.quote(server.name)} --timeout {seconds:g}"
        do += "; or start it by hand to see what it waits for"
        return Cause(Code.SERVER_SLOW, said, do)
    if found is not None:
        return found
    told = telling_line(stderr)
    if not told and re.match(r"exited with code 0|closed its output", said):
        do = "its command may be no MCP server, or needs a word more in args (such as stdio)"
        return Cause(Code.NOT_MCP, f"{said} before it had answered", do)
    because = f": {told}" if told and told not in said else ""
    by_hand = f"start {server.address!r} with its args by hand to see why, or disable it"
    return Cause(Code.SERVER_FAILED, f"{said}{because}", by_hand)


def _never_started(said: str) -> Cause | None:
    """Return why no process came about, None if one did."""
    if match := _NOT_FOUND.match(said):
        command = match["command"]
        if "/" in command or "\\" in command:
            return Cause(Code.PROGRAM_MISSING, f"there is no program {command}", program_hint(command))
        return Cause(Code.PROGRAM_MISSING, f"{command} is not on PATH", program_hint(command))
    if _NO_FOLDER.match(said):
        return Cause(Code.FILE_MISSING, said.partition(";")[0], 'correct "cwd" of its entry, or make the folder')
    return None


def _writes_no_mcp(said: str) -> Cause | None:
    """Return what is wrong with what a server writes, None if it writes MCP or nothing."""
    if NO_REQUEST in said:
        do = "report it to its author: an answer has to carry the id of its request"
        return Cause(Code.NOT_MCP, said, do)
    if UNREADABLE in said:
        return Cause(Code.NOT_MCP, said, "update the server, or report it to its author: its answers cannot be read")
    if "speaks protocol version" in said:
        return Cause(Code.NOT_MCP, said, "update the server, or foretool if that is older")
    if IN_PLACE not in said:
        return None
    if '"jsonrpc"' in said:
        do = "report it to its author: each message has to stand on one line, with a line end after it"
        return Cause(Code.NOT_MCP, said, do)
    do = 'correct "args" of its entry; its documentation says what it needs'
    return Cause(Code.ARGUMENTS_WRONG, said, do)


def _unlisted(said: str) -> Cause:
    # A list over the limit names its own way out.
    what, _, setting = said.partition("; raise ")
    do = f"raise {setting}" if setting else "its documentation may say what it needs first"
    return Cause(Code.TOOLS_NOT_LISTED, what, f"{do}; it is asked again by itself")


def _remote_cause(server: Server, error: str) -> Cause:
    code = next((code for pattern, code in _HTTP_STATUS if re.search(pattern, error)), None)
    if code is Code.SIGN_IN:
        what = error.partition(": run `foretool login")[0]
        return Cause(code, what, f"run `foretool login {shlex.quote(server.name)}` in a terminal")
    if cause := _writes_no_mcp(error):
        return cause
    if _UNLISTED.search(error):
        return _unlisted(error)
    what, _, address = error.partition(": set url to ")
    if address:
        return Cause(Code.ADDRESS_WRONG, what, f"set its url to {address}")
    if code is not None:
        what, _, said = error.partition("; put ")
        if said:
            return Cause(code, what, f"put {said}")
        do = "check its url" if code is Code.ADDRESS_WRONG else "check its headers, or make a new token"
        return Cause(code, error, do)
    if _CERTIFICATE.search(error):
        do = "set client_cert and client_key of its entry to files with a certificate that it accepts, and its key"
        return Cause(Code.CREDENTIAL_REFUSED, error, do)
    if "broke off at https" in error:
        do = "check its url; if it wants a certificate of its clients (mTLS), set client_cert and client_key"
        return Cause(Code.NETWORK_DOWN, error, do)
    if "within" in error:
        return Cause(Code.SERVER_SLOW, error, "check its url, and that this machine can reach it")
    return Cause(Code.NETWORK_DOWN, error, "check its url, and that this machine can reach it")
