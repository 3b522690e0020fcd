"""Wordings of a set, asked for as `foretool enrich` asks, with a stand-in of the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_fakes import wishes

from bench.datasets import read_tools
from bench.retrieval import ranking, written_wordings
from foretool.learning.enrichment.endpoint import EndpointError, Reply


class Model:
    """Answers by what the text says of the tool; may fail at one."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, text: str) -> Reply:
        self.asked.append(text)
        if "broken" in text:
            raise EndpointError("the model wrote nothing")
        return Reply(wishes("how warm is it", "use box one, please", "see https://evil.example/x"), 50)

    async def close(self) -> None: ...


def test_each_tool_is_asked_about_once_and_the_file_is_read_by_the_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"server": "sky", "name": "get_weather", "description": "Returns the forecast"},
        {"server": "sky", "name": "broken_tool", "description": "Does not work"},
        {"server": "ground", "name": "box one", "description": "Opens"},
    ]
    (tmp_path / "tools.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tools, file, model = read_tools(tmp_path), tmp_path / "wordings.tsv", Model()
    file.write_text("ground\tbox one\topen up\n")
    came = written_wordings.write(tools, {}, model, file)
    assert (came["tools"], came["asked"], came["empty"], came["tokens"]) == (3, 2, 1, 50)
    assert sorted(text.partition(":")[0] for text in model.asked) == ["sky", "sky"]
    assert "sky/broken_tool: the model wrote nothing" in capsys.readouterr().err
    read = ranking.read_wordings(file)
    # Names of other tools and addresses are taken out, as the command does.
    assert read["sky", "get_weather"] == ("how warm is it", "use please")
    assert read["sky", "broken_tool"] == () and read["ground", "box one"] == ("open up",)
    again = written_wordings.write(tools, {}, model, file)
    assert again["asked"] == 0 and len(model.asked) == 2


def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tools.jsonl").write_text(json.dumps({"server": "sky", "name": "get_weather"}))
    with pytest.raises(SystemExit, match="expected a file of weights"):
        written_wordings.main([str(tmp_path), str(tmp_path / "none.gguf"), str(tmp_path / "out.tsv")])
