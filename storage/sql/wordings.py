"""The table `wordings`: what a language model answered for each tool that it was asked about."""

from __future__ import annotations

from typing import Final

from foretool.storage.records import Wording
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import STRINGS, Table

_WORDINGS: Final = Table("wordings", Wording, {"texts": STRINGS}, said=("server", "tool", "model"))


class WordingStore(Subject):
    """How people word wishes, by the text of the tool that a language model was given; one answer for each text."""

    def save(self, wording: Wording) -> None:
        """Keep an answer, in place of earlier ones for the same text or the same tool."""
        with self._database.atomic():
            self._database.run(
                "DELETE FROM wordings WHERE server = ? AND tool = ? AND digest <> ?",
                (wording.server, wording.tool, wording.digest),
            )
            self._database.run(_WORDINGS.upsert("digest"), _WORDINGS.row(wording))

    def all(self) -> list[Wording]:
        return [_WORDINGS.read(row) for row in self._database.rows(f"{_WORDINGS.select} ORDER BY server, tool, at")]

    def remove(self, server: str = "", model: str = "") -> int:
        """Delete the answers of one server or model, or all; return how many there were."""
        where = "(server = :server OR :server = '') AND (model = :model OR :model = '')"
        sql = f"DELETE FROM wordings WHERE {where}"  # noqa: S608  # a constant
        return self._database.run(sql, {"server": server, "model": model})
