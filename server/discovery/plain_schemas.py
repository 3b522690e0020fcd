"""Makes a schema short for a model: `without_noise` loses nothing that a caller needs, `trim` says where it cuts.

Generators write much that says nothing: the dialect, titles that repeat the name, bounds at the end of what a number
can hold. A cut must not lie either: what is left of an enum stands under `examples`, because an `enum` would forbid
the other values, and every cut is told in the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foretool.retrieval.document import cut_at_word, follow_reference
from foretool.retrieval.words import compact

_MAX_PROPERTIES, _MAX_VALUES, _MAX_MEMBERS, _MAX_TEXT = 20, 12, 4, 100
"""The most that a trimmed schema keeps: properties, enum values, members of a union, characters of a description."""
_MAX_NAMES: Final = 12
"""Names of properties that are told where the properties themselves are cut."""
_DEEPEST: Final = 60
"""Below this depth, a schema is left as it is."""
_SENTINELS: Final = frozenset(
    bound
    for size in (31, 32, 53, 63, 64)
    for bound in (2**size - 1, -(2**size - 1), -(2**size), float(2**size), float(-(2**size)))
) | {1.7976931348623157e308, -1.7976931348623157e308}
"""The ends of integers and floating point numbers: a bound there comes from a type and not from the tool."""
_BOUNDS: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "maxItems"))
_EMPTY: Final[dict[str, tuple[Any, ...]]] = {
    "additionalProperties": (True, False, {}),
    "required": ([],),
    "description": ("",),
    "title": ("",),
    "minLength": (0,),
    "minItems": (0,),
    "uniqueItems": (False,),
    "deprecated": (False,),
    "default": (None,),
}
"""Values that say nothing. Few servers refuse properties that they do not have, and those say so, so a ban of further
ones says nothing either."""
_SCHEMAS: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "definitions", "patternProperties")

_LOOKED_AT: Final = frozenset(("$schema", "$id", *_BOUNDS, *_EMPTY, *_SCHEMAS, *_LISTS, *_NAMED))

Schema = dict[str, Any]


def without_noise(schema: Any, name: str = "", depth: int = 0) -> Any:
    """Return a schema without what says nothing to a caller. `name`: the property that it describes."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    kept: Schema = {}
    for key, value in schema.items():
        if key not in _LOOKED_AT:
            kept[key] = value
        elif not _is_noise(key, value, name, depth, schema):
            kept[key] = _read(key, value, depth + 1)
    return kept


def _is_noise(key: str, value: Any, name: str, depth: int, schema: Schema) -> bool:
    """Return whether a member of a schema says nothing to a caller."""
    if key == "$schema" or (key == "$id" and depth == 0 and "$ref" not in str(schema)):
        return True
    if key in _BOUNDS and not isinstance(value, bool) and value in _SENTINELS:
        return True
    for each in _EMPTY.get(key, ()):
        if type(value) is type(each) and value == each:
            return True
    return key == "title" and isinstance(value, str) and (not depth or compact(value) == compact(name))


def _read(key: str, value: Any, depth: int) -> Any:
    if key in _SCHEMAS:
        return without_noise(value, depth=depth)
    if key in _LISTS and isinstance(value, list):
        return [without_noise(each, depth=depth) for each in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: without_noise(each, name, depth) for name, each in value.items()}
    return value


def trim(schema: Schema, depth: int = 2, root: Mapping[str, Any] | None = None) -> Schema:
    """Cut a schema to what a first call needs: names, types, the first values of an enum, what is required. References
    into the schema itself are followed down to `depth`. Every cut is told."""
    is_whole = root is None
    root = schema if root is None else root
    schema = _follow(schema, root)
    kept: Schema = {key: schema[key] for key in ("type", "required", "const") if key in schema}
    cuts: list[str] = []
    _trim_values(schema, kept, cuts)
    properties = schema.get("properties")
    if isinstance(properties, dict) and depth > 0:
        names = _in_order(properties, schema.get("required"))
        kept["properties"] = {
            name: trim(properties[name], depth - 1, root)
            for name in names[:_MAX_PROPERTIES]
            if isinstance(properties[name], dict)
        }
        if left := names[_MAX_PROPERTIES:]:
            cuts.append(f"{len(left)} more properties: {_some(left)}")
    elif isinstance(properties, dict) and properties:
        cuts.append(f"properties: {_some(_in_order(properties, schema.get('required')))}")
    _trim_parts(schema, kept, cuts, depth, root)
    said = schema.get("description")
    text = cut_at_word(" ".join(said.split()), _MAX_TEXT) if isinstance(said, str) and not is_whole else ""
    if text or cuts:
        kept["description"] = " ".join(filter(None, (text, f"({'; '.join(cuts)})" if cuts else "")))
    return kept


def _trim_values(schema: Schema, kept: Schema, cuts: list[str]) -> None:
    values = schema.get("enum")
    if isinstance(values, list):
        if len(values) > _MAX_VALUES:
            kept["examples"] = values[:_MAX_VALUES]
            cuts.append(f"{_MAX_VALUES} of {len(values)} values")
        else:
            kept["enum"] = values


def _trim_parts(schema: Schema, kept: Schema, cuts: list[str], depth: int, root: Mapping[str, Any]) -> None:
    if isinstance(schema.get("items"), dict) and depth > 0:
        kept["items"] = trim(schema["items"], depth - 1, root)
    for key in ("anyOf", "oneOf"):
        members = schema.get(key)
        if isinstance(members, list) and members:
            if depth > 0:
                kept[key] = [trim(one, depth - 1, root) for one in members[:_MAX_MEMBERS] if isinstance(one, dict)]
            if depth <= 0 or len(members) > _MAX_MEMBERS:
                shown = _MAX_MEMBERS if depth > 0 else 0
                cuts.append(f"{shown} of {len(members)} forms")


def _in_order(properties: Mapping[str, Any], required: Any) -> list[str]:
    """Return the names of properties, the required ones first."""
    first = (
        [name for name in required if isinstance(name, str) and name in properties]
        if isinstance(required, list)
        else []
    )
    return list(dict.fromkeys([*first, *properties]))


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")


def _follow(schema: Schema, root: Mapping[str, Any]) -> Schema:
    """Merge into a schema what its local `$ref` points at; its own members win. One step only, so cycles end."""
    return {**follow_reference(schema, root), **schema}
