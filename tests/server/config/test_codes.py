"""Each code has its paragraph in docs/errors.md, and each paragraph its code."""

from __future__ import annotations

import re
from pathlib import Path

from foretool.server.config.codes import Code, explain_code

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/errors.md").read_text("utf-8")
PARAGRAPHS = dict(re.findall(r"(?m)^### (FT\d{3}): .+\n\n((?:.+\n?)+)", PAGE))


def test_every_code_has_its_paragraph_and_every_paragraph_its_code() -> None:
    assert list(PARAGRAPHS) == [code.value for code in Code]


def test_a_paragraph_says_more_than_its_title() -> None:
    assert [code for code, text in PARAGRAPHS.items() if len(text) < 80 or text.count(".") < 2] == []


def test_codes_are_in_order_and_none_is_given_twice() -> None:
    written = re.findall(r'= "(FT\d{3})"', (ROOT / "server/config/codes.py").read_text("utf-8"))
    assert written == sorted(set(written)) == [code.value for code in Code]


def test_every_code_is_used_by_some_source() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "server").rglob("*.py") if path.name != "codes.py")
    assert [code.name for code in Code if f"Code.{code.name}" not in sources] == []


def test_an_installed_copy_has_what_the_page_says_of_each_code() -> None:
    for code in Code:
        title, text = explain_code(code)
        assert f"### {code}: {title}\n" in PAGE and len(text) >= 80 and "](" not in text
        assert text.split("\n")[0].split(". ")[0].split("[")[0][:40] in PAGE
