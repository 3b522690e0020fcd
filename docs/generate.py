"""Writes the tables of `docs/configuration.md` from the settings themselves; the text around them is written by hand.

`python docs/generate.py` renews the file, `python docs/generate.py --check` exits 1 if it is stale.
"""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from foretool.server.settings import ProfileEntry, ServerEntry, Settings

PAGE = Path(__file__).with_name("configuration.md")
STRUCTS: dict[str, type[msgspec.Struct]] = {"server": ServerEntry, "foretool": Settings, "profile": ProfileEntry}
_TYPES = {str: "string", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def render(page: str) -> str:
    """`page` with the table after each `<!-- table: NAME -->` renewed."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + table(STRUCTS[str(match[2])]) + match[3],
        page,
        flags=re.DOTALL,
    )


def table(struct: type[msgspec.Struct]) -> str:
    rows = [_row(field, struct.__annotations__[field.name]) for field in msgspec.structs.fields(struct)]
    return "\n".join(["| key | type | unit | default | meaning |", "|---|---|---|---|---|", *rows, ""])


def _row(field: msgspec.structs.FieldInfo, annotation: Any) -> str:
    metas = _metas(annotation)
    extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
    description = next(meta.description for meta in metas if meta.description)
    default = extra.get("default") or f"`{msgspec.json.encode(_default(field)).decode()}`"
    return f"| `{field.name}` | {type_in_words(annotation)} | {extra.get('unit', '')} | {default} | {description} |"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """Those written around the type and those inside it (`Tokens | None`), inner ones first."""
    inner = [meta for argument in get_args(annotation) for meta in _metas(argument)]
    own = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return [*inner, *(meta for meta in own if isinstance(meta, msgspec.Meta))]


def type_in_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"list of {type_in_words(arguments[0])}s"
    if origin is dict:
        inner = arguments[1]
        return "object of profiles" if inner is ProfileEntry else f"object of {type_in_words(inner)}s"
    if arguments:
        return type_in_words(arguments[0])
    return _TYPES[annotation]


def main(arguments: list[str]) -> int:
    page = PAGE.read_text(encoding="utf-8")
    renewed = render(page)
    if "--check" in arguments:
        if renewed != page:
            sys.stderr.write(f"{PAGE.name} is stale; run `python docs/generate.py`\n")
        return int(renewed != page)
    PAGE.write_text(renewed, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
