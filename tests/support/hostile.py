"""Hostile peers: what a broken or malicious client or server may write, as hypothesis strategies of bytes.

A message is put together from members that are mostly right, so that it gets far, and now and then missing, doubled, of
another kind, or no JSON at all. `test_hostile.py` and `python -m bench.proxy.hostile_messages`
feed them to the real edges and links.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Written = SearchStrategy[bytes]

# Values


def _nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"1" + closing * depth


DEPTH = 400
"""Deeper than this, whether a message can be read is the parser's affair; it must only be answered."""

# JSON that is rarely meant.
VALUES = (
    b"0", b"-0", b"-1", b"1.0", b"0.1e1", b"1e400", b"-1e-400", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"9" * 40, b"-" + b"9" * 5000, b"null", b"true", b"false", b"[]", b"{}", b"[[]]",
    b'{"":{}}', b'""', b'" "', b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\xc3\xa9"',
    b'"\xe2\x80\xa8"',
    b'"\\u2028\\n\\r"', b'"' + b"x" * 70_000 + b'"', b'"__proto__"', b'"../../etc/passwd"', b'"%s%n{0}${HOME}"',
    b"\"'; DROP TABLE calls; --\"", b'{"a":1,"a":2}', b'{"\\ud800":1}', _nested(b"[", b"]", 60),
    _nested(b'{"a":', b"}", 60),
    _nested(b"[", b"]", 3000), _nested(b'{"a":', b"}", 3000), b"[" + b"0," * 5000 + b"0]",
    b"{" + b",".join(b'"k%d":0' % at for at in range(2000)) + b"}",
)  # fmt: skip
# What is no JSON.
BROKEN = (
    b"", b"01", b"+1", b"1.", b".5", b"0x10", b"NaN", b"Infinity", b"-Infinity", b"undefined", b"nul", b"[1,]",
    b'{"a":1,}', b"{'a':1}", b"[1 2]", b"/* */1", b'{"a"}', b"\xef\xbb\xbf{}", b'"\xff\xfe"', b'"\xed\xa0\x80"',
    b'"\x00"', b'"\x01\x1b[31m"', b'"\\x41"', b'"\\u12"', b"[" * 3000,
)  # fmt: skip


def weighted(*choices: tuple[int, Written]) -> Written:
    """`one_of` takes the branches of its branches for its own; here each choice has the weight that is said."""
    return _chosen(st.sampled_from([strategy for weight, strategy in choices for _ in range(weight)]))


@st.composite
def _chosen(draw: st.DrawFn, strategies: SearchStrategy[Written]) -> bytes:
    return draw(draw(strategies))


odd: Written = weighted((9, st.sampled_from(VALUES)), (1, st.sampled_from(BROKEN)))


def one(*values: object) -> Written:
    """One of some values that are as they should be."""
    return st.sampled_from([value if isinstance(value, bytes) else json.dumps(value).encode() for value in values])


_MODES = st.sampled_from("k" * 36 + "oogt")
"""Of a member: kept, odd, gone, twice."""


@st.composite
def _members(draw: st.DrawFn, members: Sequence[tuple[bytes, Written, Written]]) -> bytes:
    """`members`: key, value, and what it may be the second time."""
    parts = []
    for key, value, other in members:
        mode = draw(_MODES)
        if mode != "g":
            parts.append(b'"%b":%b' % (key, draw(odd if mode == "o" else value)))
        if mode == "t":
            parts.append(b'"%b":%b' % (key, draw(other)))
    return b"{" + b",".join(parts) + b"}"


def made(**members: Written) -> Written:
    """An object, hostile in some of its members; `__` in a name is a slash, a trailing `_` is left out."""
    return keyed({name.rstrip("_").replace("__", "/"): value for name, value in members.items()})


def keyed(members: Mapping[str, Written]) -> Written:
    """`made`, for names that are none in Python."""
    return _members([(name.encode(), value, st.one_of(value, odd)) for name, value in members.items()])


def listed(item: Written, most: int = 3) -> Written:
    return st.lists(item, max_size=most).map(lambda items: b"[" + b",".join(items) + b"]")


# What both sides write

VERSION = one("2.0")
# Few, so that they meet: ids in use, in use again, cancelled, answered twice.
IDS = one(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "a", "b", "1")
ODD_IDS = one(
    0, -1, 2**53, 2**63 - 1, 2**63, 2**64, 10**40, 1.5, 1.0, True, None, "", "x" * 3000, "é", b'"\\ud800"', [1], {}
)
ids: Written = weighted((9, IDS), (1, ODD_IDS))

TOKENS = one(1, 2, 3, 4, 5, 6, 7, 8, "p", "q", "")
URIS = one("file:///a", "file:///b", "ui://x", "", "no uri", "x" * 300)
LEVELS = one("debug", "info", "emergency", "loud")
NAMES = one(
    "bad__echo", "bad__hold", "good__echo", "bad__none", "call_tool", "call_tool_write", "discover_tools", "x" * 200, ""
)
METHODS = one(
    "initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read",
    "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get",
    "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/get", "no/such", "", "__init__",
    "x" * 500,
)  # fmt: skip
capabilities = st.one_of(
    one({}, {"sampling": {}, "elicitation": {}, "roots": {}}, {"tasks": {}, "extensions": {"x/y": {}}}),
    made(sampling=one({}), elicitation=one({}), extensions=one({})),
)
identity = made(name=one("rough", "claude-code", "x" * 400), version=one("1", ""))
envelope = keyed(
    {
        "io.modelcontextprotocol/protocolVersion": one("2026-07-28", "2025-11-25", "1999-01-01"),
        "io.modelcontextprotocol/clientInfo": identity,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "progressToken": TOKENS,
        "io.modelcontextprotocol/logLevel": LEVELS,
    }
)
meta = weighted((1, made(progressToken=TOKENS, traceparent=odd)), (2, envelope))
arguments = weighted((4, one({}, {"text": "x"}, {"n": 1})), (2, made(text=odd)), (1, odd))

# By method: params that are mostly right.
PARAMS: dict[str, Written] = {
    "initialize": made(
        protocolVersion=one("2025-11-25", "2024-11-05", "1.0"), capabilities=capabilities, clientInfo=identity
    ),
    "server/discover": made(_meta=envelope),
    "ping": made(_meta=meta),
    "tools/list": made(cursor=one("x", ""), _meta=meta),
    "tools/call": made(name=NAMES, arguments=arguments, _meta=meta),
    "resources/list": made(_meta=meta),
    "resources/templates/list": made(_meta=meta),
    "resources/read": made(uri=URIS, _meta=meta),
    "resources/subscribe": made(uri=URIS),
    "resources/unsubscribe": made(uri=URIS),
    "prompts/list": made(_meta=meta),
    "prompts/get": made(name=one("bad__p", "p", ""), arguments=arguments),
    "completion/complete": made(
        ref=made(type_=one("ref/prompt", "ref/resource"), name=one("bad__p"), uri=URIS),
        argument=made(name=odd, value=odd),
    ),
    "logging/setLevel": made(level=LEVELS),
    "subscriptions/listen": made(
        notifications=made(toolsListChanged=one(True), resourceSubscriptions=listed(URIS)), _meta=envelope
    ),
}
_bridged = made(name=one("call_tool", "call_tool_write"), arguments=made(name=NAMES, arguments=arguments), _meta=meta)
_searched = made(
    name=one("discover_tools"),
    arguments=made(
        task=one("echo", "hold\nx", ""), names=listed(NAMES), sufficiency=one(0, 1, -1), limit=one(1, 0, 10**9)
    ),
)
_retried = made(
    name=NAMES,
    arguments=arguments,
    requestState=one("foretool-0", "", "x"),
    inputResponses=made(q1=odd),
    _meta=envelope,
)


def request(method: str, params: Written) -> Written:
    return made(jsonrpc=VERSION, id=ids, method=one(method), params=params)


REQUESTS: Written = weighted(
    *[(1, request(method, params)) for method, params in PARAMS.items()],
    (6, request("tools/call", PARAMS["tools/call"])),
    *[(2, request("tools/call", each)) for each in (_bridged, _searched, _retried)],
    (3, made(jsonrpc=VERSION, id=ids, method=weighted((4, METHODS), (1, odd)), params=odd)),
)


def note(method: str, **params: Written) -> Written:
    return made(jsonrpc=VERSION, method=one(method), params=made(**params))


_progress = note("notifications/progress", progressToken=TOKENS, progress=one(1, 0.5, -3), total=one(2), message=odd)
_cancelled = note("notifications/cancelled", requestId=ids, reason=odd)

error = made(code=one(-32601, -32000, 2**70, 1.5, "x"), message=one("no", ""), data=odd)
results = made(
    content=listed(st.one_of(made(type_=one("text", "image"), text=odd), odd)),
    isError=one(True, False, 1),
    structuredContent=odd,
    resultType=one("complete", "input_required", "no such"),
    inputRequests=made(q=made(method=one("elicitation/create", "roots/list", "x"), params=odd)),
    requestState=odd,
    _meta=odd,
    nextCursor=odd,
    tools=odd,
)


def reply(idents: Written, result: Written) -> Written:
    return weighted(
        (4, made(jsonrpc=VERSION, id=idents, result=weighted((4, result), (1, odd)))),
        (2, made(jsonrpc=VERSION, id=idents, error=weighted((3, error), (1, odd)))),
        (1, made(jsonrpc=VERSION, id=idents, result=odd, error=error)),
        (1, made(jsonrpc=VERSION, id=idents)),
    )


# No message at all

_half = st.sampled_from(
    [b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bad__echo"', b'{"', b"{", b'"x', b"["]
)
_garbage = st.one_of(
    odd,
    _half,
    st.binary(max_size=40),
    st.text(st.characters(), max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            b"\0" * 100,
            b"Listening on port 3000",
            b"\x1b[2J",
            b"Content-Length: 20\r\n\r\n",
            b"\r",
            b" \t ",
            '{"é'.encode("utf-16"),
        ]
    ),
).map(lambda data: data.replace(b"\n", b" "))


def batch(message: Written) -> Written:
    return listed(message, 3)


# The two sides

QUESTION_IDS = one("foretool-1", "foretool-2", "foretool-3", 1, "a", 10**40, None)
_client_notes = weighted(
    (3, _cancelled),
    (1, _progress),
    (1, note("notifications/initialized")),
    (1, note("notifications/roots/list_changed")),
    (1, made(jsonrpc=VERSION, method=weighted((1, one("notifications/no/such")), (1, odd)), params=odd)),
    (1, made(jsonrpc=VERSION, id=ids, method=one("notifications/cancelled"), params=made(requestId=ids))),
)
_client_replies = reply(QUESTION_IDS, made(action=one("accept", "no"), content=odd, roots=odd))
from_client: Written = weighted(
    (14, REQUESTS), (3, _client_notes), (1, _client_replies), (1, batch(REQUESTS)), (1, _garbage)
).map(lambda data: data.replace(b"\n", b" "))

tool = made(
    name=one("echo", "new", "a b", "x" * 300, "é"),
    title=odd,
    description=st.one_of(one("Does it."), odd),
    inputSchema=st.one_of(
        one(
            {"type": "object"},
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"$ref": "#"},
            {"allOf": [{}]},
        ),
        made(type_=one("object"), properties=odd, required=odd, x_=odd),
    ),
    outputSchema=odd,
    annotations=st.one_of(one({"readOnlyHint": True}, {"destructiveHint": "yes"}), odd),
    _meta=odd,
)
tool_lists = made(tools=st.one_of(listed(st.one_of(tool, odd), 6), odd), nextCursor=one("", None), ttlMs=odd)

greetings = weighted(
    (
        6,
        keyed(
            {
                "protocolVersion": one("2025-11-25", "2024-11-05", "1999-01-01"),
                "supportedVersions": weighted((3, one(["2026-07-28"], ["1999-01-01"], [])), (1, odd)),
                "capabilities": weighted((3, made(tools=one({}), resources=odd, prompts=odd, logging=odd)), (1, odd)),
                "serverInfo": weighted((2, identity), (1, odd)),
                "instructions": weighted((1, one("Use it.", "")), (1, odd)),
                "resultType": one("complete"),
                "_meta": weighted((1, made(serverInfo=odd)), (1, odd)),
            }
        ),
    ),
    (1, odd),
)

_upstream_questions = st.one_of(
    made(jsonrpc=VERSION, id=ids, method=one("ping"), params=odd),
    made(
        jsonrpc=VERSION,
        id=ids,
        method=one("roots/list", "sampling/createMessage", "elicitation/create", "tools/list", "x"),
        params=st.one_of(made(message=one("Sure?"), requestedSchema=odd, mode=odd, elicitationId=one("e1")), odd),
    ),
)
_upstream_notes = st.one_of(
    _progress,
    _cancelled,
    note("notifications/message", level=LEVELS, data=odd, logger=odd),
    note("notifications/tools/list_changed"),
    note("notifications/resources/list_changed"),
    note("notifications/resources/updated", uri=URIS),
    note("notifications/elicitation/complete", elicitationId=one("e1", "e2")),
    made(jsonrpc=VERSION, method=st.one_of(one("notifications/no/such"), odd), params=odd),
)
_UPSTREAM_IDS = one(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 999, "3", 3.0, None, 10**40)
from_upstream: Written = weighted(
    (2, _upstream_questions),
    (3, _upstream_notes),
    (3, reply(_UPSTREAM_IDS, results)),
    (1, reply(_UPSTREAM_IDS, tool_lists)),
    (1, batch(_upstream_notes)),
    (1, _garbage),
).map(lambda data: data.replace(b"\n", b" "))


# HTTP

VERBS = st.sampled_from(["POST"] * 30 + ["GET", "GET", "DELETE", "PUT", "HEAD"])
PATHS = st.sampled_from(["/mcp"] * 30 + ["/mcp/none", "/", "/mcp/../x", "/health", "/mcp\0"])
_header_values = st.one_of(
    st.sampled_from(
        [b"", b"x", b"2026-07-28", b"2025-11-25", b"1999-01-01", b"\xff\xfe", b"=?base64?!?=", b"x" * 9000]
    ),
    st.binary(max_size=12),
)
_HEADERS: dict[bytes, SearchStrategy[bytes]] = {
    b"accept": st.sampled_from([b"text/html", b"application/json", b"*/*;q=x", b","]),
    b"content-type": st.sampled_from([b"application/json; charset=latin-1", b"text/plain", b";"]),
    b"mcp-protocol-version": st.sampled_from([b"2026-07-28", b"2025-11-25", b"2099-01-01", b"x"]),
    b"mcp-session-id": st.sampled_from([b"SESSION", b"dead", b""]),
    b"mcp-method": st.sampled_from([b"tools/call", b"tools/list", b"server/discover"]),
    b"mcp-name": st.sampled_from([b"bad__echo", b"good__echo", b"=?base64?YQ==?="]),
    b"last-event-id": st.sampled_from([b"0.0", b"1.-1", b"99999.99999", b"-1.5", b"9" * 40 + b".0"]),
    b"content-length": st.sampled_from([b"0", b"-1", b"x", b"9" * 30, b"\xb2"]),
    b"host": st.sampled_from([b"localhost", b"evil.example", b"[::1", b"127.0.0.1:x"]),
    b"origin": st.sampled_from([b"http://localhost", b"null", b"http://[", b"https://evil.example"]),
    b"authorization": st.sampled_from([b"Bearer x", b"Basic \xff", b"Bearer"]),
}
HttpRequest = tuple[str, str, list[tuple[bytes, bytes]], bytes]


_LIVES = st.booleans()
_ODD_HEADERS = st.lists(st.sampled_from([None] * 9 + list(_HEADERS)), max_size=2)
_ODD_LINES = {name: st.one_of(values, _header_values) for name, values in _HEADERS.items()}


@st.composite
def http_requests(draw: st.DrawFn) -> HttpRequest:
    """Verb, path, header lines and body; the lines fit the body, but for one or two. `SESSION`: a living session."""
    body = draw(from_client)
    lines = {
        b"host": b"localhost",
        b"accept": b"application/json, text/event-stream",
        b"content-type": b"application/json",
    }
    if draw(_LIVES):
        lines[b"mcp-session-id"] = b"SESSION"
    else:
        lines |= _modern_lines(body)
    told = list(lines.items())
    for name in draw(_ODD_HEADERS):
        if name is not None:
            told = [line for line in told if line[0] != name or draw(_LIVES)]
            told.append((name, draw(_ODD_LINES[name])))
    return draw(VERBS), draw(PATHS), told, body


def _modern_lines(body: bytes) -> dict[bytes, bytes]:
    """What a modern request repeats of its body."""
    lines = {b"mcp-protocol-version": b"2026-07-28"}
    for header, member in ((b"mcp-method", b"method"), (b"mcp-name", b"name"), (b"mcp-name", b"uri")):
        if found := re.search(b'"%b":"([ -~]*?)"' % member, body):
            lines.setdefault(header, found[1][:500])
    return lines


STATUSES = st.sampled_from([200] * 12 + [202, 204, 301, 400, 401, 404, 405, 429, 500, 503])
KINDS = st.sampled_from(
    [
        "application/json",
        "application/json; charset=utf-8",
        "text/event-stream",
        "text/event-stream",
        "text/html",
        "",
        "x",
    ]
)

_FIELDS = (
    b"id: 7", b"id: \xff", b"id: a\0b", b"id", b"retry: 1", b"retry: x", b"retry: 99999999999", b"event: message",
    b"event: endpoint", b": comment", b"data", b"nonsense",
)  # fmt: skip


_DATA = st.lists(from_upstream, max_size=2)
_ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
_MORE_FIELDS = st.lists(st.sampled_from(_FIELDS), max_size=2)
_LAST = st.sampled_from([b"", b"", b"data: {", b"\xef\xbb\xbf", b"\0", b"\r"])


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """A stream of server-sent events with hostile messages in it, and hostile in itself."""
    parts = []
    for data in draw(_DATA):
        end = draw(_ENDS)
        lines = [b"data: " + part for part in data.split(b"\r")]
        lines += draw(_MORE_FIELDS)
        parts += [end.join(lines), end, end]
    return b"".join(parts) + draw(_LAST)
