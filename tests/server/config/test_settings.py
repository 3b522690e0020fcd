"""The settings and their page: every key documented, with type, unit and default, and the page up to date."""

import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from foretool.server.config.settings import ProfileEntry, ServerEntry, Settings, keys_of

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("struct", [ServerEntry, Settings, ProfileEntry])
def test_every_setting_is_documented_with_a_default_and_numbers_with_a_unit(
    struct: type[msgspec.Struct], generate: ModuleType
) -> None:
    table = generate.table(struct)
    assert table in (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == [f"`{name}`" for name in keys_of(struct)]
    for key, kind, default, meaning in rows:
        assert kind and default and meaning.endswith("."), key
        assert kind not in ("integer", "number"), "has no unit"


def test_a_name_that_ends_in_a_unit_has_that_unit(generate: ModuleType) -> None:
    for name, unit in re.findall(r"\| `(\w+)` \| (?:integer|number) \((\S+)\) \|", generate.table(Settings)):
        ending = {"s": "s", "ms": "ms", "mib": "MiB", "tokens": "tokens"}.get(name.rsplit("_")[-1], unit)
        assert unit == ending, name
