"""The priors that a user imported from another store, as they apply to the tools of this catalog.

They are an artifact like a learned model, so every proxy and replica takes them up, and they can be taken back. What
they say is read again when other models are to serve, and matched again when the catalog changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.retrieval import portable_priors
from foretool.retrieval.portable_priors import NOTHING, Expected, ListFigures, NotPriors, PortablePriors
from foretool.storage.engine import StorageError
from foretool.storage.records import Artifact, Tool, ToolId, Usage
from foretool.storage.sql.artifacts import ArtifactStore

if TYPE_CHECKING:
    from foretool.server.catalog.catalog import Catalog

IMPORTED: Final = "imported"
"""The kind of the artifact; its bytes are the file (`retrieval.portable_priors`)."""


class ImportNote(Struct, frozen=True):
    """What is kept of an import beside its bytes."""

    exported: str
    tools: int
    followed: int
    tasks: int


def note_of(priors: PortablePriors) -> ImportNote:
    """Return what `status` says of priors."""
    return ImportNote(priors.exported, len(priors.tools), len(priors.followed), priors.tasks)


class ImportedPriors:
    """What the imported priors say of the tools of one catalog; nothing if none were imported."""

    def __init__(self, artifacts: ArtifactStore, catalog: Catalog) -> None:
        self._artifacts = artifacts
        self._catalog = catalog
        self._version = -1
        self._at = 0.0
        self._priors: PortablePriors | None = None
        self._expected: tuple[int, Expected] = (-1, NOTHING)
        """The version of the catalog for which it was worked out."""
        self._parameters: dict[str, tuple[str, ...]] = {}
        """By hash of the definition."""

    def refresh(self) -> None:
        """Read the priors again if other models are to serve; what was read stays where the store does not answer."""
        try:
            version = self._artifacts.version
            if version == self._version:
                return
            kept = self._artifacts.load_intact(IMPORTED) if version else []
        except StorageError:
            return
        self._version = version
        self.use(*_first_readable(kept))

    def use(self, priors: PortablePriors | None, at: float) -> None:
        """Apply these priors, imported at some time, until the store has others."""
        self._priors, self._at = priors, at
        self._expected = (-1, NOTHING)
        self._parameters.clear()

    @property
    def has_any(self) -> bool:
        """Whether priors that were read say what comes next. Asking costs nothing."""
        return self._priors is not None and bool(self._priors.followed)

    @property
    def lists(self) -> ListFigures | None:
        """What was learned elsewhere about lists; None if nothing was."""
        return self._priors.lists if self._priors is not None else None

    @property
    def expected(self) -> Expected:
        """What the priors mean for the tools of this catalog."""
        if self._priors is None:
            return NOTHING
        if self._expected[0] != self._catalog.version:
            found = portable_priors.find_tools(self._priors, self._catalog.tools(), self._names_of)
            self._expected = self._catalog.version, portable_priors.expect(self._priors, found)
        return self._expected[1]

    def usage(self) -> dict[ToolId, Usage]:
        """Return the calls that each tool counts as having had at the import."""
        return {tool: Usage(tool, calls, 0, self._at) for tool, calls in self.expected.calls.items()}

    def after(self, history: Sequence[ToolId]) -> tuple[Mapping[ToolId, float], float]:
        """Return which tools follow the last call with which probability, and that of the task being done; ({}, 0)
        where nothing is known."""
        if not history or not self.has_any:
            return {}, 0.0
        expected = self.expected
        return expected.next.get(history[-1], {}), expected.end.get(history[-1], 0.0)

    def _names_of(self, tool: Tool) -> tuple[str, ...]:
        if (known := self._parameters.get(tool.schema_hash)) is None:
            known = self._parameters[tool.schema_hash] = portable_priors.parameter_names(tool.definition)
        return known


def _first_readable(kept: Sequence[tuple[Artifact, bytes]]) -> tuple[PortablePriors | None, float]:
    for artifact, data in kept:
        try:
            return portable_priors.decode_priors(data), artifact.promoted_at
        except NotPriors:
            continue
    return None, 0.0
