"""Reads the arguments of `discover_tools`, and bounds what one search may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from foretool.retrieval.ranking import Query, task_lines
from foretool.server.methods.schema_fit import read_json
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.storage.records import ToolId

MOST: Final = 50
"""Matches that one call of `discover_tools` may ask for."""
MATCHES: Final = 12
"""How many matches are looked at for an answer; `answer_shape` says how many of them it shows."""
_WIDE: Final = 25
"""How many matches a wider search shows."""
_MOST_TASK: Final = 20_000
MOST_NAME: Final = 256
"""Characters of a task, and of a name that is asked for."""
_WORST_SUFFICIENCY: Final = 0.5
"""If the caller rates what it sees below this, the search widens (ITR section 3.7, threshold tau)."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The arguments of `discover_tools`."""

    task: str = ""
    names: tuple[str, ...] = ()
    sufficiency: float | None = None
    limit: int | None = None
    handle: str = ""
    structured: bool = False
    """Whether a program asks: it gets `structuredContent` as well."""

    @property
    def lines(self) -> tuple[str, ...]:
        return task_lines(self.task)

    @property
    def wanted(self) -> int:
        if self.limit is not None:
            return max(1, min(self.limit, MOST))
        return _WIDE if self.widens else MATCHES

    @property
    def widens(self) -> bool:
        """Whether the caller says that what it sees does not suffice."""
        return self.sufficiency is not None and self.sufficiency < _WORST_SUFFICIENCY


_arguments = msgspec.json.Decoder(Arguments, strict=False)


def read_arguments(value: Raw | bytes) -> Arguments:
    """Decode the arguments of a call. Raises `RpcError`, which says what is wrong."""
    try:
        return _bounded(_decode(value))
    except ValueError as error:  # every error of the decoder is one
        raise RpcError(jsonrpc.INVALID_PARAMS, f"discover_tools: {error}; see its inputSchema") from None


def _decode(value: Raw | bytes) -> Arguments:
    try:
        # Models send null for what they leave out.
        given = {name: each for name, each in jsonrpc.fields(value).items() if bytes(each) != b"null"}
        if "task" not in given and "query" in given:  # what tools that find tools take elsewhere
            given["task"] = given["query"]
        if jsonrpc.json_type(given.get("task", Raw(b""))) == "array":  # one need per line
            given["task"] = jsonrpc.raw("\n".join(map(str, jsonrpc.decode_value(given["task"]))))
        if (name := jsonrpc.text(given.get("names"))) is not None:
            given["names"] = read_json(name) or jsonrpc.raw([name])
        return _arguments.decode(jsonrpc.encode(given))
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Only the fast decoder refuses lone surrogates, and nothing in them can be searched for.
        return Arguments(task=str(jsonrpc.decode_value(value).get("task", "")).encode(errors="replace").decode())


def _bounded(arguments: Arguments) -> Arguments:
    """Return the arguments. Raises ValueError for more of them than one search may take: others wait meanwhile."""
    if len(arguments.task) > _MOST_TASK:
        raise ValueError(f"task: expected at most {_MOST_TASK:,} characters, found {len(arguments.task):,}; shorten it")
    if len(arguments.names) > MOST or any(len(name) > MOST_NAME for name in arguments.names):
        raise ValueError(f"names: expected at most {MOST} of at most {MOST_NAME} characters; ask for fewer")
    return arguments


def read_servers(arguments: Arguments, is_server: Callable[[str], bool]) -> Arguments:
    """Take those of servers out of the names. A model that knows no tool gives them: they say where the task is to be
    done, and are searched for alone where there is no task."""
    servers = [name for name in arguments.names if is_server(name)]
    if not servers:
        return arguments
    where = f"in {' and in '.join(servers)}"
    lines = [f"{line} {where}" for line in arguments.lines] or servers
    names = tuple(name for name in arguments.names if name not in servers)
    return replace(arguments, task="\n".join(lines), names=names)


def query(arguments: Arguments, history: Sequence[ToolId], servers: Sequence[str], profile: str = "") -> Query:
    """Return what is searched for: the lines, or the names where there are none, after these calls, with these servers
    in use, in a profile. The task alone ranks: small models fill in `names` with any tool that they know."""
    names = () if arguments.lines else arguments.names
    return Query(arguments.lines, names, tuple(history), tuple(servers), profile)
