"""What may be written: any text, without what UTF-8 has no bytes for."""

from foretool.storage.sql.values import encode_json, is_writable, replace_surrogates


def test_an_unpaired_surrogate_becomes_a_question_mark() -> None:
    assert encode_json(["a\ud800b"]) == '["a?b"]'
    assert replace_surrogates(("a\ud800", 1, b"\xff")) == ["a?", 1, b"\xff"]
    assert replace_surrogates({"text": "\udfff"}) == {"text": "?"}
    assert is_writable("\U0001f600") and is_writable(7) and not is_writable("\ud800")
