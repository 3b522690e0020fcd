"""People ask in their own language, and their models pass the words on: the right tool is found all the same."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over, tool

pytestmark = pytest.mark.anyio

FILES = [
    tool("list_directory", "List which files and folders are in a folder.", {"path": {}}),
    tool("read_text_file", "Read the complete contents of a file as text.", {"path": {}}),
    tool("write_file", "Create a new file or overwrite an existing one.", {"path": {}, "content": {}}),
    tool("move_file", "Move or rename files and directories.", {"source": {}, "destination": {}}),
    tool("search_files", "Recursively search for files matching a pattern.", {"pattern": {}}),
    tool("delete_file", "Delete a file for good.", {"path": {}}),
    tool("get_file_info", "Retrieve size, times of change and permissions of a file.", {"path": {}}),
]
MAIL = [
    tool("send_email", "Send an email message to somebody.", {"to": {}, "body": {}}),
    tool("list_emails", "List the messages in the inbox.", {}),
]


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("welche Dateien liegen in diesem Ordner", "files__list_directory"),
        ("lösch die Datei alt.txt", "files__delete_file"),
        ("schick meinem Chef eine Mail", "mail__send_email"),
        ("qué archivos hay en esta carpeta", "files__list_directory"),
        ("borra el archivo viejo.txt", "files__delete_file"),
        ("envía un correo a mi jefe", "mail__send_email"),
        ("このフォルダにはどんなファイルがある", "files__list_directory"),
        ("report.txtを削除して", "files__delete_file"),
        ("上司にメールを送って", "mail__send_email"),
    ],
)
async def test_the_right_tool_is_found_in_german_spanish_and_japanese(task: str, found: str) -> None:
    async with proxy_over(FakeUpstream("files", FILES), FakeUpstream("mail", MAIL)) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        answer = await stage.client.discover(task)
        assert answer["matches"][0]["name"] == found
        assert answer["confidence"] != "none" and "note" not in answer
        assert all(match["description"].isascii() for match in answer["matches"]), "what is told stays in English"


async def test_a_tool_described_in_german_or_japanese_is_found_in_english_and_in_its_language() -> None:
    described = [
        tool("rechnung_erstellen", "Erstellt eine neue Rechnung für einen Kunden und gibt ihre Nummer zurück."),
        tool("stock_jp", "商品の在庫数を確認します。"),
    ]
    async with proxy_over(FakeUpstream("files", FILES), FakeUpstream("shop", described)) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for task in ("create an invoice for a customer", "schreib dem Kunden eine Rechnung"):
            assert (await stage.client.discover(task))["matches"][0]["name"] == "shop__rechnung_erstellen"
        for task in ("check the stock of a product", "商品の在庫はある"):
            answer = await stage.client.discover(task)
            assert answer["matches"][0]["name"] == "shop__stock_jp"
        assert "商品の在庫数を確認します。" in str(answer["matches"][0]), "a client is shown what the server says"


async def test_a_task_in_a_language_that_is_not_read_is_asked_for_in_english_once() -> None:
    async with proxy_over(FakeUpstream("files", FILES)) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        first = await stage.client.discover("Hvilke filer ligger i denne mappe")
        assert "ask again in English" in first["note"] and "German" in first["note"]
        assert "note" not in await stage.client.discover("Slet den gamle mappe med billeder")
        assert "note" not in await stage.client.discover("which files are in this folder")
