"""A tool as fields of text."""

from __future__ import annotations

from dataclasses import dataclass

from foretool.storage.records import Tool, ToolId


@dataclass(frozen=True, slots=True)
class Document:
    """What a tool says about itself, by field, as written."""

    id: ToolId
    server: str
    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[str, ...] = ()
    """Names of the top-level parameters."""
    parameter_texts: tuple[str, ...] = ()
    """Descriptions and the first enum values of the parameters."""
    server_text: str = ""


def document(tool: Tool, server_text: str = "") -> Document:
    """Read a tool's definition; whatever is missing or malformed is left empty."""
    raise NotImplementedError


def summary_line(document: Document) -> str:
    """The first sentence of the description in one line of at most 120 characters."""
    raise NotImplementedError
