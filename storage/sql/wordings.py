"""The table `wordings`: what a language model answered for each tool that it was asked about."""

from __future__ import annotations

from typing import Final

from foretool.storage.records import Wording
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import STRINGS, Table

_WORDINGS: Final = Table("wordings", Wording, {"texts": STRINGS}, said=("server", "tool", "model"))


class Wordings(Subject):
    """Implements `WordingStore`."""

    def save(self, wording: Wording) -> None:
        with self._database.atomic():
            self._database.run(
                "DELETE FROM wordings WHERE server = ? AND tool = ? AND digest <> ?",
                (wording.server, wording.tool, wording.digest),
            )
            self._database.run(_WORDINGS.upsert("digest"), _WORDINGS.row(wording))

    def all(self) -> list[Wording]:
        return [_WORDINGS.read(row) for row in self._database.rows(f"{_WORDINGS.select} ORDER BY server, tool, at")]

    def remove(self, server: str = "", model: str = "") -> int:
        where = "(server = :server OR :server = '') AND (model = :model OR :model = '')"
        sql = f"DELETE FROM wordings WHERE {where}"  # noqa: S608  # a constant
        return self._database.run(sql, {"server": server, "model": model})
