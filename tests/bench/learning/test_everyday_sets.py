"""How everyday wishes are read from the repositories that have them."""

import json
from pathlib import Path

from bench.datasets import read_rows
from bench.learning.everyday_sets import SOURCES, capped, described, write_all

FOLD = "CrossValidation/autoGeneFromRealAnno/one/CrossValidation/KFold_1/trainset"


def put(folder: Path, path: str, content: object) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def test_each_set_is_written_in_the_form_of_the_others(tmp_path: Path) -> None:
    put(tmp_path, "clinc/data/data_full.json", {"train": [["what time is it", "time"], ["hello", "greeting"]]})
    for intent in described("hwu"):
        put(tmp_path, f"hwu/{FOLD}/{intent}.csv", "answerid;a;b;c;d;e\n")
    put(tmp_path, f"hwu/{FOLD}/datetime_query.csv", 'answerid;a;b;c;d;e\n1;a;b;c;"short form";"as said"\n')
    put(tmp_path, "nl2bash/data/bash/all.nl", "show the end of it\nboth of them at once\ntoo short\n")
    put(tmp_path, "nl2bash/data/bash/all.cm", "sudo tail x\ncat x | wc\nls x\n")
    apis = {"api_ports": [{"name": "getLeave", "description": "d", "parameters": {"id": "string"}}]}
    put(tmp_path, "callnavi/Dataset/APIs/hr.json", apis)
    question = [{"role": "user", "content": "my leave"}]
    asked = [{"question": question, "ground_truth": {"API": ["getLeave", "other"]}}]
    put(tmp_path, "callnavi/Dataset/Questions/hr.json", asked)
    part = "nestful/data/non-executable/non-executable-glaive"
    put(tmp_path, f"{part}-spec.json", [{"name": "add", "description": "Adds.", "query_parameters": {"a": {}}}])
    put(tmp_path, f"{part}-data.json", [{"input": "add it", "output": [{"name": "add"}, {"name": "var"}]}])

    write_all(tmp_path, tmp_path / "out")

    found = {name: read_rows(tmp_path / "out" / name / "train.jsonl") for name in SOURCES}
    wishes = {name: [(row["query"], row["calls"]) for row in rows] for name, rows in found.items()}
    assert wishes == {
        "clinc": [("what time is it", ["clock/get_current_time"])],
        "hwu": [("as said", ["datetime/now"])],
        "nl2bash": [("show the end of it", ["filesystem/read_last_lines"])],
        "callnavi": [("my leave", ["hr/getLeave"])],
        "nestful": [("add it", ["add"])],
    }
    (row,) = read_rows(tmp_path / "out" / "callnavi" / "tools.jsonl")
    assert row["server"] == "hr" and list(row["input_schema"]["properties"]) == ["id"]


def test_wishes_are_capped_by_tool_and_told_once() -> None:
    wishes = [(f"wish {at % 7}", "one") for at in range(20)] + [("other", "two")]
    found = capped(wishes, 5)
    assert sum(calls == ["one"] for _, calls in found) == 5 and len(found) == len({text for text, _ in found}) == 6
    assert found == capped(wishes, 5)
