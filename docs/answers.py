"""What each command prints with `--json`, as types: `python docs/answers.py` prints their JSON Schema.

A command that prints one of its own types needs a line in `ANSWERS`; the classes here are for those that put their
answer together from parts.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Struct

from foretool.desk.commands.bench import BenchAnswer
from foretool.desk.commands.replay import ReplayAnswer
from foretool.desk.confusions import Confusion
from foretool.desk.dependencies import Neighbours
from foretool.learning.commands.enrich import Enriched, KeptWording, RemovedWordings
from foretool.learning.run import RunResult
from foretool.retrieval.graph import Edge
from foretool.server.commands.connect import NewToken
from foretool.server.commands.doctor import CodeExplanation
from foretool.server.commands.first_start import FirstStart
from foretool.server.commands.forget import Outcome
from foretool.server.commands.login import LoggedOut
from foretool.server.commands.misses import FittingMisses
from foretool.server.commands.one_miss import MissDetails
from foretool.server.commands.pin import Pins
from foretool.server.commands.repairs import Fixed
from foretool.server.commands.search import SearchResult
from foretool.server.commands.status import Status
from foretool.server.commands.tools import Inventory
from foretool.server.diagnosis import Finding, TokenSummary, UpstreamCheck
from foretool.server.ledger.conditions import ListedServer
from foretool.server.ledger.review import Batch, DefinitionChange
from foretool.server.recording.costs import Costs
from foretool.server.recording.notes import ProxyJob
from foretool.server.setup.installation import Installation
from foretool.server.setup.mcp_registry import RegistryListing
from foretool.server.setup.registrations import Registration
from foretool.server.trust.findings import TextFinding as TextFinding
from foretool.storage.records import Approval, Artifact, ClientRecord, Policy


class FoundClient(Struct):
    """One config file of a client that `init` has read."""

    client: str
    title: str
    path: str
    servers: list[str]
    problem: str
    """Why it could not be read, or ""."""


class PlannedChange(Struct):
    """One file that `init` changes."""

    path: str
    why: str


class InitAnswer(Struct):
    """What `init` found and changed."""

    clients: list[FoundClient]
    added: dict[str, list[str]]
    """By server, the clients that had it."""
    notes: list[str]
    changes: list[PlannedChange]
    problems: list[str]
    backup: str | None
    """The folder with the old files; null if nothing was changed."""
    is_well: bool | None
    """Whether every server works; null if none was started."""
    findings: list[Finding]


class UndoAnswer(Struct):
    """What was put back."""

    restored: list[str]
    problems: list[str]


class StatusAnswer(Status, frozen=True):
    """What the storage file and the config say."""

    is_well: bool
    """False if a server is broken, down or lists no tools, a background job fails, or the storage cannot be used; the
    exit status is 1."""


class DoctorAnswer(Struct):
    """What an examination has found."""

    is_well: bool
    """False if a finding is an error, after the changes of `--fix`; the exit status is 1."""
    summary: TokenSummary
    findings: list[Finding]
    upstreams: list[UpstreamCheck]
    failing_jobs: list[ProxyJob]
    """What running proxies cannot do in the background at present; each is among the findings too."""
    fixed: Fixed | None
    """What `--fix` did; null without it."""
    left: list[Finding] | None
    """What is found after the changes of `--fix`; null if it changed nothing."""


class CostRow(Costs, kw_only=True):
    """What the tasks of one client took on one day. A figure is null where there is nothing to divide by."""

    miss_rate: float | None
    """Misses per call, 1 at most."""
    discoveries_per_task: float | None
    hidden_per_task: float | None
    read_per_task: float | None
    full_per_task: float | None
    saved: float | None
    """The share of the full list's tokens that was not read."""
    own_search_per_task: float | None
    saved_of_own_search: float | None
    """The share of the tokens of the client's own search that was not read; negative if more was read."""


class StatsAnswer(Struct):
    """Misses, discovery turns and tokens of a time."""

    since: float
    full_list_tokens: int
    """Tokens of a list of all tools."""
    total: CostRow
    clients: list[CostRow]
    days: list[CostRow]


class ClientAnswer(ClientRecord, frozen=True, kw_only=True):
    """One client by name and version, and the policy that it gets."""

    auto: Policy
    """What the setting `auto` chooses for it."""
    why: str


class ReportAnswer(Struct):
    """Learned models."""

    served: list[Artifact]
    history: list[Artifact]
    """The newest first."""


class ConnectAnswer(Registration, frozen=True):
    """How one client learns of foretool, and of its prompt hook."""

    hook: dict[str, Any] | None
    hook_file: str


class ReviewAnswer(Struct):
    """What waits for a decision, by server."""

    servers: list[Batch]


class DecisionAnswer(Struct):
    """What was decided."""

    server: str
    decision: Approval
    decided: list[DefinitionChange]
    gone: list[str]
    """Hashes of definitions that changed meanwhile, about which nothing was decided."""


class EditAnswer(Struct):
    """What changed in the config file."""

    config: str
    what: str
    """What was done; "" if nothing had to change."""
    lines: list[str]
    """The lines that change, with `+` and `-`, without secrets."""
    backup: str | None
    """The folder with the earlier file; null if nothing was written."""


class AddAnswer(EditAnswer):
    """What was added, and what the new servers did when they were started once."""

    added: list[str]
    notes: list[str]
    started: list[FirstStart]
    """Empty if none was started."""


class PinAnswer(EditAnswer):
    """What changed in the config file, and what the pins cost then."""

    pins: Pins


class UninstallAnswer(Struct):
    """What `uninstall` would change; with `--json` it changes nothing."""

    changes: list[PlannedChange]
    problems: list[str]
    in_no_client: list[str]
    """Servers that only foretool's own file will have."""
    data: dict[str, str]
    """Folders that stay, and what they hold."""
    installation: Installation


ANSWERS: Final[dict[str, Any]] = {
    "init": InitAnswer,
    "init --undo": UndoAnswer,
    "logout": LoggedOut,
    "status": StatusAnswer,
    "status --stats": StatsAnswer,
    "status --clients": list[ClientAnswer],
    "tools": Inventory,
    "tools --needs": list[Edge],
    "tools TOOL --needs": Neighbours,
    "list": list[ListedServer],
    "add": AddAnswer,
    "add --search": list[RegistryListing],
    "remove": EditAnswer,
    "enable": EditAnswer,
    "disable": EditAnswer,
    "pin": Pins,
    "pin TOOL": PinAnswer,
    "pin --undo": UndoAnswer,
    "search": SearchResult,
    "misses": FittingMisses,
    "misses NUMBER": MissDetails,
    "misses --undo": UndoAnswer,
    "misses --confused": list[Confusion],
    "replay": ReplayAnswer,
    "bench": BenchAnswer,
    "enrich": Enriched,
    "enrich --show": list[KeptWording],
    "enrich --remove": RemovedWordings,
    "learn": RunResult,
    "learn --report": ReportAnswer,
    "learn --rollback": dict[str, tuple[Artifact, Artifact | None]],
    "forget": Outcome,
    "doctor": DoctorAnswer,
    "doctor --explain CODE": CodeExplanation,
    "doctor --undo": UndoAnswer,
    "connect": list[ConnectAnswer],
    "review": ReviewAnswer,
    "review SERVER": Batch,
    "review SERVER --approve": DecisionAnswer,
    "token new": NewToken,
    "uninstall": UninstallAnswer,
}
"""By command line, with the options that change the answer."""

_REFERENCE: Final = "#/$defs/{name}"


def write_schema() -> str:
    """Return the JSON Schema of every answer. Each command line has its own under `properties`."""
    schemas, components = msgspec.json.schema_components(
        ANSWERS.values(), schema_hook=_describe_other, ref_template=_REFERENCE
    )
    kinds = _kinds_by_members()
    for schema in components.values():
        if "properties" in schema:
            for name, meaning in _meanings(kinds[schema["title"], frozenset(schema["properties"])]).items():
                member = schema["properties"][name]
                schema["properties"][name] = {"description": meaning, **member}
            # Every member is always printed, also where a record has a default for it.
            for member in schema["properties"].values():
                member.pop("default", None)
            schema["required"] = list(schema["properties"])
    lines = [f"{_compact(line)}:{_compact(schema)}" for line, schema in zip(ANSWERS, schemas, strict=True)]
    types = [_write_type(name, schema) for name, schema in sorted(components.items())]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What foretool prints with --json, by command line",
    }
    return _extend(_extend(_compact(head), "properties", lines), "$defs", types) + "\n"


def _write_type(name: str, schema: dict[str, Any]) -> str:
    """Write one type with a line for each member. Its name is its key, so it has no title."""
    if "description" in schema:
        schema["description"] = inspect.cleandoc(schema["description"])
    members = [f" {_compact(member)}:{_compact(kind)}" for member, kind in schema.pop("properties", {}).items()]
    rest = _compact({key: value for key, value in schema.items() if key != "title"})
    return f"{_compact(name)}:{_extend(rest, 'properties', members) if members else rest}"


def _extend(written: str, key: str, members: list[str]) -> str:
    """Add an object to a written one, with a line for each member."""
    return written[:-1] + f',"{key}":{{\n' + ",\n".join(members) + "}}"


def _compact(value: Any) -> str:
    """Write JSON on one line, an alternative of simple types as one type."""
    return msgspec.json.encode(_join_types(value)).decode()


def _join_types(value: Any) -> Any:
    """Write `anyOf` of types without further conditions as a list of types, and no names of members that are literals.

    Not every version of msgspec writes these names.
    """
    if isinstance(value, list):
        return [_join_types(item) for item in value]
    if not isinstance(value, dict):
        return value
    choices = value.get("anyOf")
    if choices and all(set(choice) == {"type"} for choice in choices):
        value = {key: item for key, item in value.items() if key != "anyOf"}
        value["type"] = [choice["type"] for choice in choices]
    return {key: _join_types(item) for key, item in value.items() if key != "propertyNames"}


def _describe_other(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "Any value."}
    assert issubclass(kind, Path), f"docs: no schema for {kind}"
    return {"type": "string"}


def _kinds_by_members() -> dict[tuple[str, frozenset[str]], Any]:
    """Return the types that answers hold, by name and members."""
    found: dict[str, Any] = {}
    for kind in ANSWERS.values():
        _collect(kind, found)
    return {(kind.__name__, frozenset(_members(kind))): kind for kind in found.values()}


def _collect(kind: Any, found: dict[str, Any]) -> None:
    if _has_members(kind):
        if _name(kind) not in found:
            found[_name(kind)] = kind
            for inner in _members(kind).values():
                _collect(inner, found)
        return
    for inner in get_args(kind):
        _collect(inner, found)


def _has_members(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind))


def _members(kind: Any) -> dict[str, Any]:
    """Return the members of a struct or a dataclass, as JSON names them, with their types."""
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclass_fields(kind)}
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _name(kind: Any) -> str:
    """Return the name of a type on the page."""
    return str(kind.__name__)


def _meanings(kind: Any) -> dict[str, str]:
    """Return what each member of a type means, by its name in JSON, where its docstring says so."""
    meanings: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        if each.__module__.startswith(("foretool", __name__)):
            meanings |= _read_docstrings(each)
    renamed = {} if is_dataclass(kind) else {each.encode_name: each.name for each in msgspec.structs.fields(kind)}
    described = {member: meanings.get(renamed.get(member, member), "") for member in _members(kind)}
    return {member: meaning for member, meaning in described.items() if meaning}


def _read_docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each member of a class, on one line."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(member.target): " ".join(ast.literal_eval(below.value).split())
        for member, below in pairwise(definition.body)
        if isinstance(member, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


if __name__ == "__main__":
    sys.stdout.write(write_schema())
