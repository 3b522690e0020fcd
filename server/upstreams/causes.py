"""Finds out why a server did not start, from what it wrote to stderr: no token, no Docker, wrong Node, wrong package.

The patterns are those of real programs; `tests/server/upstreams/test_causes.py` has what each of them printed. The text
is that of a stranger: a pattern takes out one word at most, and nothing of it is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from foretool.server.config.codes import Code
from foretool.server.upstreams.missing_variables import asked_variables

_LONGEST_LINE: Final = 200
"""Characters of the line that are shown in which a program says what it does not accept."""
_LINES: Final = 5
"""How many of the last lines of stderr people are shown."""


class Cause(Struct, frozen=True):
    """Why a server did not start, with a code and what to do."""

    code: Code
    what: str
    """Completes "NAME: "."""
    do: str
    certain: bool = True
    """Another start would fail in the same way."""
    lacks: tuple[str, ...] = ()
    """Variables that are set here, that it asks for, and that it does not get."""

    @property
    def line(self) -> str:
        """The cause as one line: what happened, its code, and what to do."""
        return f"{self.what} [{self.code}]; {self.do}"


class _Pattern(Struct, frozen=True):
    code: Code
    text: re.Pattern[str]
    what: str
    """`{0}` stands for what the group of the pattern has found."""
    do: str
    certain: bool = True


def _pattern(code: Code, text: str, what: str, do: str, *, certain: bool = True) -> _Pattern:
    return _Pattern(code, re.compile(text), what, do, certain)


_WORD: Final = r"['\"`]?([@\w][\w@./:+=\[\]-]{0,100})"

PYTHON_SDK: Final = re.compile(
    r"'(?:Server|FastMCP)' object has no attribute '\w+'|No module named 'mcp\.[\w.]+'"
    r"|cannot import name '\w+' from (?:partially initialized module )?'mcp[\w.]*'"
)
"""A server that was written for version 1 of the MCP SDK for Python and runs with version 2, or the other way round."""

START_WITH: Final = "start it with "
"""Stands before a launcher, which may not be on this machine."""
_PUT_INTO_ENV: Final = 'put the variable that its documentation names into "env" of its entry'

# The first pattern that fits decides, so what is more exact stands first.
_PATTERNS: Final = (
    _pattern(
        Code.DOCKER_DOWN,
        r"(?i)cannot connect to the docker daemon|docker daemon (?:is not running|not running)|docker desktop is (?:not"
        r" running|unable to start)|failed to connect to the docker API|error during connect:.{0,200}docker",
        "Docker is not running",
        "start Docker (or Docker Desktop), then run foretool doctor again",
    ),
    _pattern(
        Code.PERMISSION_DENIED,
        r"(?i)permission denied while trying to connect to the docker",
        "it may not use Docker",
        "add yourself to the group docker and log in again, or use rootless Docker",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)(?:pull access denied for|manifest unknown|repository) " + _WORD + r"[^\n]{0,60}"
        r"(?:repository does not exist|not found|may require)",
        "Docker finds no image {0}",
        "check the name of the image in its args; a private one needs docker login",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)npm (?:error|ERR!)(?: code)? E?404[\s\S]{0,400}?(?:/|')"
        r"((?:@|%40)?[\w.%-]+(?:/|%2f)?[\w.-]*)(?:@[^\s']*)?(?:'| - Not found)",
        "npm knows no package {0}",
        "check the name of the package in its args; it may have moved",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)npm (?:error|ERR!) notarget No matching version found for " + _WORD,
        "npm has no such version: {0}",
        "correct the version behind @ in its args, or leave it out",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)could not determine executable to run",
        "the npm package has no program to run",
        "check the name of the package in its args: it may be a library, not a server",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)because " + _WORD + r" was not found in the package registry",
        "PyPI has no package {0}",
        "check the name of the package in its args",
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)an executable named " + _WORD + r"[`'\"]? is not provided by package|Package "
        + _WORD + r"[`'\"]? does not provide any executables",
        "the package has no such program: {0}",
        'with uvx, "args": ["--from", "PACKAGE", "PROGRAM"] names both',
    ),
    _pattern(
        Code.PACKAGE_MISSING,
        r"(?i)no matching distribution found for " + _WORD + r"|no version of " + _WORD + " ",
        "PyPI has no such package or version: {0}",
        "check the name and the version in its args",
    ),
    _pattern(
        Code.ARGUMENTS_WRONG,
        r"error: Failed to parse: " + _WORD,
        "uvx does not understand {0}",
        "correct the name and the version of the package in its args",
    ),
    _pattern(
        Code.MODULE_MISSING,
        r"Could not locate the bindings file|No native build was found|ERR_DLOPEN_FAILED|NODE_MODULE_VERSION"
        r"|Could not load the ['\"]sharp['\"] module|invalid ELF header",
        "a compiled part of it is not there, or was built for another Node.js",
        "run npm rebuild in its folder, with the Node.js of its entry; or delete the folder and install it again",
    ),
    _pattern(
        Code.MODULE_MISSING,
        r"(?:ImportError: |OSError: |shared libraries: )(lib[\w.+-]{1,100}): |version ['`](\w+_[\d.]{1,20})' not found",
        "this machine lacks the system library {0}",
        "install the system package that has it",
    ),
    _pattern(
        Code.RUNTIME_WRONG,
        r"(?i)(?:EBADENGINE|unsupported engine|requires? (?:at least )?node(?:\.js)? ?(?:version)?"
        r"|node(?:\.js)? version)[\s\S]{0,200}?((?:>=?|\^|v)? ?\d+(?:\.\d+)*)",
        "it needs another Node.js ({0})",
        "install a newer Node.js (https://nodejs.org)",
    ),
    _pattern(
        Code.RUNTIME_WRONG,
        r"(?i)SyntaxError: (?:The requested module 'node:|Unexpected token '(?:\?|\.|=)|Cannot use import statement)"
        r"|ReferenceError: (fetch|File|ReadableStream|WebSocket|CustomEvent|crypto) is not defined"
        r"|TypeError: \S{0,40}(?:toSorted|structuredClone|withResolvers) is not a function",
        "it needs a newer Node.js",
        "install a newer Node.js (https://nodejs.org)",
    ),
    _pattern(
        Code.RUNTIME_WRONG,
        r"(?i)(?:requires[ -](?:a different )?python|does not satisfy python|python version)"
        r"[^\n]{0,60}?((?:>=|>|==|~=)\s?3[\d.]*)",
        "it needs Python {0}",
        "install the Python that it names, and write its path as the command of the entry",
    ),
    _pattern(
        Code.RUNTIME_WRONG,
        PYTHON_SDK.pattern,
        "it was written for another version of the MCP SDK for Python",
        "start it in a Python of its own with mcp<2 (or mcp>=2 where it is newer than that)",
    ),
    _pattern(
        Code.PORT_IN_USE,
        r"(?i)EADDRINUSE[^\n]{0,80}?:(\d{2,5})\b|address already in use[^\n]{0,80}?(\d{2,5})?",
        "its port {0} is in use",
        "another program has the port, perhaps another copy of the server: stop it, or choose another port",
        certain=False,
    ),
    _pattern(
        Code.DISK_FULL,
        r"ENOSPC|(?i:no space left on device)",
        "the disk is full",
        "free some space; npm cache clean --force and uv cache clean remove downloads",
    ),
    _pattern(
        Code.MODULE_MISSING,
        r"ModuleNotFoundError: No module named " + _WORD + r"|No module named " + _WORD,
        "its Python lacks the module {0}",
        f"install the package into the Python that its command names, or {START_WITH}uvx",
    ),
    _pattern(
        Code.FILE_MISSING,
        r"Error: Cannot find module '(/[^']{1,200}|[A-Za-z]:[^']{1,200})'|can't open file '([^']{1,200})'",
        "the file to start is not there: {0}",
        "correct the path in its args; perhaps the server has to be built first (npm run build)",
    ),
    _pattern(
        Code.MODULE_MISSING,
        r"Cannot find (?:module|package) " + _WORD,
        "its package {0} is not installed",
        f"run npm install in its folder, or {START_WITH}npx",
    ),
    _pattern(
        Code.NETWORK_DOWN,
        r"ECONNREFUSED (?:127\.0\.0\.1|::1|localhost):(\d+)|(?i:connection to server at \"?"
        r"(?:localhost|127\.0\.0\.1)[^\n]{0,40}port (\d+) failed)",
        "nothing answers on port {0} of this machine, which it needs",
        "start the program that it works with (a database, an application), or correct the address in its entry",
        certain=False,
    ),
    _pattern(
        Code.NETWORK_DOWN,
        r"SELF_SIGNED_CERT|UNABLE_TO_VERIFY|(?i:invalid peer certificate|certificate verify failed"
        r"|self[- ]signed certificate|unable to get local issuer|unable to verify the first certificate)",
        "it does not trust the certificate of the network",
        "let it inherit the variable of your shell that names the certificates:"
        ' "inherit": ["SSL_CERT_FILE"], for Node ["NODE_EXTRA_CA_CERTS"]',
        certain=False,
    ),
    _pattern(
        Code.NETWORK_DOWN,
        r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|getaddrinfo|(?i:dns error|network is unreachable"
        r"|name or service not known|temporary failure in name resolution|nodename nor servname|could not connect to"
        r"|failed to fetch|connection refused)",
        "it cannot reach the network",
        'check the connection; behind a proxy, let it inherit HTTPS_PROXY (add "inherit": ["HTTPS_PROXY"])',
        certain=False,
    ),
    _pattern(
        Code.CREDENTIAL_REFUSED,
        r"(?i)\b(?:invalid|expired|bad|incorrect|wrong|revoked)[ _-](?:api[ _-]?)?(?:key|token|credentials|password"
        r"|authentication)|(?:401|403)[ :,-]{1,3}(?:unauthorized|forbidden)|authentication failed|bad credentials",
        "its credentials were refused",
        'make a new token or key where the service lists them, and put it into "env" of its entry',
    ),
    _pattern(
        Code.CREDENTIAL_MISSING,
        r"(?i)(?:api[ _-]?key|access[ _-]?token|auth[ _-]?token|\btoken|credentials?|password"
        r"|client[ _-]?secret)\b[^\n]{0,40}(?:required|missing"
        r"|not (?:set|provided|found|configured|defined)|must be|is empty)"
        r"|(?:provide|missing|no|set|need)s?\b[^\n]{0,40}(?:api[ _-]?key|access[ _-]?token"
        r"|auth[ _-]?token|credentials)",
        "it got no token or key",
        _PUT_INTO_ENV,
    ),
    _pattern(
        Code.ARGUMENTS_WRONG,
        r"(?m)^(?i:usage: ).|(?i:error: (?:the following arguments are required|unrecognized arguments|unknown option"
        r"|missing required|option )|please provide an? [^\n]{0,60}(?:argument|command[ -]line)|invalid option"
        r"|no such option|unexpected argument)",
        "it does not accept its arguments: {line}",
        'correct "args" of its entry; its documentation says what it needs',
    ),
    _pattern(
        Code.FILE_MISSING,
        r"ENOENT[^\n]{0,80}?'([^'\n]{1,200})'|(?i:no such file or directory):? '?([^'\n]{0,200})"
        r"|(?i:director(?:y|ies) (?:does|do) not exist|none of the specified directories)"
        r"[^\n]{0,20}?:? ?(/[^\n]{0,200})?",
        "a file or folder that it needs is not there: {0}",
        'correct the path in "args" or "env" of its entry',
    ),
    _pattern(
        Code.PERMISSION_DENIED,
        r"EACCES[^\n]{0,80}?'([^'\n]{1,200})'|(?i:permission denied):? '?([^'\n]{0,200})",
        "it may not read, write or run something: {0}",
        "check who may use that file or folder (ls -l)",
    ),
)  # fmt: skip

# What a program prints around its reason and what says nothing alone.
_NOISE: Final = re.compile(
    r"(?i)^\s*(?:$|at\s|node:internal|node:\w+:\d+$|Node\.js v\d|\^+\s*$|[{}\[\]()]+,?\s*$|npm (?:warn|notice)\b"
    r"|npm (?:error|ERR!)\s*(?:\d{3}\s*)?(?:$|code|a complete log|errno|syscall|path|dest|note that you can|tarball"
    r"|notarget in most cases|notarget or one|this is not|to correct|requirestack)"
    r"|traceback|file \"|~+\s*$|throw |code: |requirestack|errno: |syscall: |address: |port: |the above exception"
    r"|during handling|raise\b|[-=*~]{3,}|installed \d+ package|run '?docker|see '?docker|for more information|hint:)"
)
_TELLING: Final = re.compile(
    r"(?i)error\b|exception|not set|missing|required?s?\b|must be|not found|denied|refused|failed|cannot|unable|invalid"
    r"|please (?:set|provide)|no such|expected"
)  # fmt: skip


_FRAME: Final = re.compile(r'\s*File "[^"]*", line \d+|\S.*:\d+$')
"""A line before the code that a traceback of Python or an error of Node quotes."""
_POINTER: Final = re.compile(r"\s+\^+\s*$")
"""Points at the code that Node quotes above it."""
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Failed|Failure)?(?::|$)")
"""The last line of a traceback: what was raised."""


def find_cause(stderr: Sequence[str], error: str) -> Cause | None:
    """Return why a server did not start; None if no pattern fits. `error`: what foretool itself saw."""
    # npm warns of packages that want another Node and then runs them all the same.
    text = "\n".join(line for line in (*stderr, error) if not line.startswith("npm warn"))
    for pattern in _PATTERNS:
        if match := pattern.text.search(text):
            found = next((each for each in match.groups() if each), "").strip(" '\"`.,;:")
            found = found.replace("%2f", "/").replace("%40", "@")
            said = pattern.what.format(found, line=telling_line(stderr)[:_LONGEST_LINE])
            what = " ".join(said.replace("()", "").split()).rstrip(" :")
            if pattern.code is Code.CREDENTIAL_MISSING and (names := asked_variables(text)):
                what = f"it needs {' and '.join(names[:2])}"
            return Cause(pattern.code, what, pattern.do, pattern.certain)
    if names := asked_variables(text):
        return Cause(Code.CREDENTIAL_MISSING, f"it needs {' and '.join(names[:2])}", _PUT_INTO_ENV)
    return None


def telling_line(stderr: Sequence[str]) -> str:
    """Return the line of stderr that most probably says why a server ended; "" if none does."""
    crash = max((at for at, line in enumerate(stderr) if line.startswith("Traceback (most recent")), default=None)
    if crash is not None and (said := _without_noise(stderr[crash:])):
        return next((line for line in said if _RAISED.match(line)), said[0])
    said = _without_noise(stderr)
    return next((line for line in said if _TELLING.search(line)), said[-1] if said else "")


def _without_noise(stderr: Sequence[str]) -> list[str]:
    """Return the lines of stderr without those around a reason, and without the code that a traceback quotes."""
    quoted = {at + 1 for at, line in enumerate(stderr) if _FRAME.match(line) and _is_code(stderr[at : at + 3])}
    return [line.strip() for at, line in enumerate(stderr) if at not in quoted and not _NOISE.match(line)]


def _is_code(lines: Sequence[str]) -> bool:
    """Return whether a place in a program and the next two lines quote code: Node points at it, Python indents it."""
    if lines[0].lstrip().startswith("File "):
        return len(lines) > 1 and lines[1][:1].isspace()
    return len(lines) == 3 and _POINTER.match(lines[2]) is not None


def last_lines(stderr: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines of stderr, at most `_LINES` of them, without frames of a stack and the like."""
    said = _without_noise(stderr)
    return tuple(said or [line for line in stderr if line.strip()])[-_LINES:]
