"""Arguments against schemas: what has one meaning is repaired, what no server accepts is refused, all else is sent.

Whole conversations: tests/scenarios/test_bridge.py.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foretool.server.methods.schema_fit import MOST_BYTES, Fit, find_misfits, fit_to_schema
from foretool.server.protocol.jsonrpc import Raw, raw


def fitted(schema: dict[str, Any], arguments: Any) -> Fit:
    return fit_to_schema({"type": "object", **schema}, arguments if isinstance(arguments, Raw) else raw(arguments))


def of(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


WHOLE, NUMBER, TEXT, FLAG = {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"}
OBJECT, TEXTS, NULL = {"type": "object"}, {"type": "array", "items": TEXT}, {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "written", "sent"),
    [
        (of(n=WHOLE), {"n": "5"}, {"n": 5}),
        (of(n=NUMBER), {"n": " 1.50 "}, Raw(b'{"n":1.50}')),
        (of(n=WHOLE), {"n": "123456789012345678901234567890"}, {"n": 123456789012345678901234567890}),
        (of(f=FLAG), {"f": "True"}, {"f": True}),
        (of(o=OBJECT), {"o": '{"a": [1, 1e400]}'}, Raw(b'{"o":{"a": [1, 1e400]}}')),
        (of(a=TEXTS), {"a": '["x"]'}, {"a": ["x"]}),
        (of(t=TEXT), {"t": 12.0}, {"t": "12.0"}),
        (of(n={"anyOf": [WHOLE, NULL]}), {"n": "null"}, {"n": None}),
        (of(n={"type": ["integer", "null"]}), {"n": "7"}, {"n": 7}),
        (of(n={"type": "integer", "nullable": True}), {"n": "null"}, {"n": None}),
        (of(o={"type": "object", **of(n=WHOLE)}), {"o": {"n": "5", "m": "6"}}, {"o": {"n": 5, "m": "6"}}),
        (of(o={"type": "object", **of(n=WHOLE)}), {"o": '{"n": "5"}'}, {"o": {"n": 5}}),
        (of(a={"type": "array", "items": WHOLE}), {"a": ["1", 2]}, {"a": [1, 2]}),
        (of(o={"$ref": "#/$defs/O"}) | {"$defs": {"O": {"type": "object"}}}, {"o": "{}"}, {"o": {}}),
        (of(n={"allOf": [WHOLE], "default": 3}), {"n": "5"}, {"n": 5}),
        (of(n={"enum": [1, 2]}), {"n": "2"}, {"n": 2}),
        (of(a=TEXTS), {"a": "likes coffee"}, {"a": ["likes coffee"]}),
        (of(a={"type": "array", "items": WHOLE}), {"a": 5}, {"a": [5]}),
        (of(a={"type": ["array", "null"], "items": TEXT}), {"a": "x"}, {"a": ["x"]}),
        (of(a={"anyOf": [TEXTS, NULL]}), {"a": "x"}, {"a": ["x"]}),
        (of(a={"type": "array", "items": OBJECT | of(n=WHOLE)}), {"a": {"n": "5"}}, {"a": [{"n": 5}]}),
        (of(a={"type": "array", "items": OBJECT | of(b=TEXTS)}), {"a": [{"b": "x"}]}, {"a": [{"b": ["x"]}]}),
    ],
)
def test_a_value_with_one_reading_is_written_as_the_schema_has_it(schema: Any, written: Any, sent: Any) -> None:
    expected = bytes(sent) if isinstance(sent, Raw) else bytes(raw(sent))
    assert fitted(schema, written) == Fit(Raw(expected))


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (of(t=TEXT), {"t": '{"a": 1}'}),
        (of(t={"type": ["string", "integer"]}), {"t": "5"}),
        (of(t={"anyOf": [TEXT, OBJECT]}), {"t": "{}"}),
        (of(t={}), {"t": "5"}),
        (of(t={"anyOf": [WHOLE, {}]}), {"t": "5"}),
        (of(o={"oneOf": [{**OBJECT, **of(a=WHOLE)}, {**OBJECT, **of(b=WHOLE)}]}), {"o": {"a": "5"}}),
        ({}, {"t": "5"}),
        (of(n=WHOLE), Raw(b'{ "n" : 5 ,"m":1.10}')),
        (of(n=WHOLE), Raw(b'{"n": 5.0}')),
        (of(t={"type": "no such type"}), {"t": 1}),
        (of(t={"$ref": "https://example.org/t"}), {"t": 1}),
        (of(t={"anyOf": [TEXTS, TEXT]}), {"t": "x"}),
    ],
)
def test_what_fits_or_may_be_meant_otherwise_stays_byte_for_byte(schema: Any, written: Any) -> None:
    arguments = written if isinstance(written, Raw) else raw(written)
    assert fitted(schema, arguments) == Fit(arguments)


@pytest.mark.parametrize(
    ("schema", "written", "said"),
    [
        (of(a=TEXT) | {"required": ["a"]}, {}, '"a" is missing'),
        (
            of(a=TEXT, b=TEXT) | {"required": ["a", "b"]},
            {"c": 1},
            '"a" and "b" are missing (found "c", which is unknown)',
        ),
        (of(user_id=TEXT) | {"required": ["user_id"]}, {"userId": "u"}, '"user_id" (found "userId") is missing'),
        (of(n=NUMBER), {"n": "one"}, '"n": expected a number, found "one"'),
        (of(n=WHOLE), {"n": {"value": 1}}, '"n": expected a whole number, found an object'),
        (of(f=FLAG), {"f": [True]}, '"f": expected a boolean, found an array'),
        (of(o=OBJECT), {"o": 5}, '"o": expected an object, found 5'),
        (of(o=OBJECT), {"o": '{"a": x}'}, '"o": expected an object, found a text that is not valid JSON'),
    ],
)
def test_what_no_server_accepts_is_refused_with_what_to_change(schema: Any, written: Any, said: str) -> None:
    assert fitted(schema, written).refusal == said


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (of(scale={"enum": ["css"], "default": "css"}) | {"required": ["scale"]}, {}),
        (of(a={"type": ["string", "null"]}) | {"required": ["a"]}, {}),
        (of(a={"type": "string", "nullable": True}) | {"required": ["a"]}, {}),
        (of(a={"anyOf": [TEXT, NULL]}) | {"required": ["a"]}, {}),
        (of(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": {"type": "string", "default": "x"}}, "required": ["a"]}, {}),
        (of(b=TEXT) | {"required": ["a"]}, {}),
        (of(t={"type": "string", "format": "date", "pattern": "^x$", "maxLength": 1}), {"t": "tomorrow"}),
        (of(n={"type": "integer", "maximum": 3}), {"n": 5}),
    ],
)
def test_what_a_server_fills_in_or_checks_itself_raises_no_doubt(schema: Any, written: Any) -> None:
    assert fitted(schema, written) == Fit(raw(written))


@pytest.mark.parametrize(
    ("schema", "written", "doubt"),
    [
        (of(a=TEXT) | {"additionalProperties": False}, {"b": 1}, '"b" is not one of its properties'),
        (of(u={"enum": ["C", "F"]}), {"u": "c"}, '"u": expected one of "C", "F", found "c"'),
        (of(n=WHOLE), {"n": 5.5}, '"n": expected a whole number, found 5.5'),
        (of(n=WHOLE), {"n": "5 minutes"}, '"n": expected a whole number, found "5 minutes"'),
        (of(n=NUMBER), {"n": ""}, '"n": expected a number, found ""'),
        (of(f=FLAG), {"f": "yes"}, '"f": expected a boolean, found "yes"'),
        (of(a=TEXTS), {"a": "x,y"}, '"a": expected an array, found "x,y"'),
        (of(t=TEXT), {"t": {"a": 1}}, '"t": expected a string, found an object'),
        (of(t=TEXT), {"t": None}, '"t": expected a string, found null'),
        (of(o={"type": "object", **of(n=WHOLE)}), {"o": {"n": []}}, '"o.n": expected a whole number, found an array'),
        (of(o={"type": "object", **of(a=TEXT), "required": ["a"]}), {"o": {}}, '"a" is missing in "o"'),
    ],
)
def test_what_a_server_may_convert_or_ignore_is_sent_with_a_doubt(schema: Any, written: Any, doubt: str) -> None:
    assert fitted(schema, written) == Fit(raw(written), doubts=(doubt,))


def bomb(steps: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
    return {"$defs": {**defs, f"d{steps}": WHOLE}, **of(a={"$ref": "#/$defs/d0"})}


CIRCLE = {"$defs": {"c": {"$ref": "#/$defs/c"}}, **of(a={"$ref": "#/$defs/c"})}
ITSELF = {"$defs": {"t": {"type": "object", **of(t={"$ref": "#/$defs/t"})}}, **of(t={"$ref": "#/$defs/t"})}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (bomb(30), raw({"a": "5"})),
        (CIRCLE, raw({"a": "5"})),
        (ITSELF, Raw(b'{"t":' * 900 + b"{}" + b"}" * 900)),
        (bomb(8) | of(a={"type": "array", "items": bomb(8)["properties"]["a"]}), raw({"a": ["5"] * 5000})),
        (of(a={"type": "array", "items": WHOLE}), raw({"a": [1] * 300_000})),
        (of(a=WHOLE), raw({"a": "5", "b": "x" * MOST_BYTES})),
    ],
)
def test_no_schema_and_no_arguments_take_long(schema: Any, arguments: Raw) -> None:
    started = time.process_time()
    assert fitted(schema, arguments).refusal == ""
    assert time.process_time() - started < 1


def test_what_is_wrong_is_told_in_few_words_however_much_it_quotes() -> None:
    names = {f"n{n}": NUMBER for n in range(9)}
    wrong = fitted(of(**names), {name: "x" * 300_000 for name in names})
    odd = fitted(of(a={"enum": ["y" * 90_000] * 50}) | {"additionalProperties": False}, {"a": "z", "k" * 9000: 1})
    assert len(wrong.refusal) < 500
    lacking = fitted(of(**names) | {"required": list(names)}, {})
    assert lacking.refusal == '"n0", "n1", "n2", "n3", "n4" and 4 more are missing'
    assert 1 < len(odd.doubts) <= 3 and len("; ".join(odd.doubts)) < 2500


@pytest.mark.parametrize("odd", ["\ud800", '{"a": "\ud800"}', "NaN", '"', "{", "[1,", "\x00"])
def test_odd_texts_are_never_an_error(odd: str) -> None:
    arguments = Raw(json.dumps({"o": odd, "n": odd}).encode())
    assert fitted(of(o=OBJECT, n=NUMBER), arguments).arguments == arguments


@pytest.mark.parametrize(
    ("schema", "answer", "said"),
    [
        (of(n=WHOLE), {"n": 5.0, "more": 1}, ""),
        (of(n=WHOLE), {"n": "5"}, '"n": expected a whole number, found "5"'),
        (of(n={**WHOLE, "default": 1}) | {"required": ["n"]}, {}, '"n" is missing'),
        (of(o=of(t=TEXT) | {"required": ["t"]}), {"o": {}}, '"t" is missing in "o"'),
        (of(a=TEXTS), {"a": ["x", 1]}, '"a.1": expected a string, found 1'),
        (of(t={"enum": ["a", "b"]}), {"t": "c"}, '"t": expected one of "a", "b", found "c"'),
        (of(n=WHOLE) | {"additionalProperties": False}, {"m": 1}, '"m" is not one of its properties'),
        (of(x={"anyOf": [WHOLE, {"not": TEXT}]}), {"x": "t"}, ""),
        ({}, [1], "expected an object, found an array"),
        (of(n=WHOLE), Raw(b'{"n":"' + b"x" * MOST_BYTES + b'"}'), ""),
    ],
)
def test_of_an_answer_is_said_what_certainly_does_not_fit(schema: dict[str, Any], answer: Any, said: str) -> None:
    assert find_misfits({"type": "object", **schema}, answer if isinstance(answer, Raw) else raw(answer)) == said
