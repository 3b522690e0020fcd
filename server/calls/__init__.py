"""The way of a call, from `tools/call` to its answer. `tool_calls.ToolCalls` takes each step, in this order:

1. A name is read. One of our own tools answers itself; `call_tools` sends each of its calls this way (`series`); a
   bridge (`call_tool`, `call_tool_write`) holds another call, as a model wrote it (`bridged_calls`).
2. The tool of that name is looked up (`lookup`), if need be once its server has listed its tools.
3. The rules decide (`admission`): run it, ask the user first, or refuse it.
4. Behind a bridge, the arguments are read as the tool's schema means them (`bridged_calls`).
5. The user is asked where the rules say so (`admission`). A yes leads back to 2: the tool may have changed, or be
   gone.
6. The call runs (`runner`): the session decides whether it is a miss, the server is asked, the outcome is recorded, and
   the client is answered. Where the server answers with a task, its result is waited for
   (`upstream_tasks`), or the client gets the task, if it speaks tasks (`client_tasks`).
7. A client that has waited long enough is answered before the call is over, and asks for the result by its id
   (`long_calls`, `kept_calls`).

A `tool_call.ToolCall` goes through all of it. A step that stops it returns a `Refusal`, and one that has to wait a
`Wait`; both are values, which `ToolCalls` alone acts on.
"""
