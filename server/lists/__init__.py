"""Which tools are on the list of a client, and why.

A tool is on the list for one of these reasons. `maker.ListDraft.choose` reads in the same order.

1. *It is ours.* `discover_tools`, `call_tool` and `call_tool_write` lead to everything that the list lacks; they are on
   every list (`own_tools`).
2. *All are wanted.* The policy `full` lists every tool that the profile finds. What the profile does not find, because
   a rule denies it or its server is left out, is on no list (`trust.policy.Reach.finds`).
3. *All fit.* Where every tool fits in the profile's `whole_tokens`, all are listed: `list_tokens`, or
   `list_whole_tokens` where nobody has set that, as a model works best with all tools of a small catalog.
4. *It is pinned.* The user's pins are listed whatever they take.
5. *It is needed more than others.* The other tools compete for the tokens that are left, in this order (`order`): what
   was used, per token; what fits the profile's description and the latest tasks; what is needed at first, before
   anything was called. A tool whose latest calls all failed does not compete. The list defines those that are called
   in most tasks (`order.most_used`) or that cannot be named, the first that fit in half of its tokens; where the client
   shows pages of servers, tools with pages go before these (`pages`). A list that may name nothing defines the first of
   all that fit.
6. *It is named.* A frozen or growing list spends its tokens on names of tools that it does not define, in the same
   order; they stand in the description of the bridge that runs them. Such a tool is hidden, and a call of it is no
   miss.
7. *A page needs it.* Tools that the page of a server may call are appended for the page; no model sees them.

The list is then written once and kept byte for byte for an epoch (`epochs`): the prompt caches of models depend on it.
It is made again when the tools, the settings or what was learned have changed, when the epoch is over, and before that
only where no prompt cache is lost. What was used meanwhile comes in with the next epoch.

8. *It was gained.* Under the policy `growing` a list names what a frozen one names, less what it keeps free of its
   tokens (`order.GAINED_SHARE`), and gains tools at its end: those that a search has found, a prompt is likely to need,
   or a call is likely to be followed by (`growth`). A tool that was gained is seen once the client has fetched the list
   again.

Which policy a client gets, and whether its list may grow once to see if the client fetches it again, is in `policy`.
`hidden` reads all of this backwards: why a tool is not on the list, and what would have put it there.

    lists = ListKeeper(ListInputs(catalog, search, recorder, config, rules, runs, unlisted, awaited))
    view = lists.view(profile, "frozen")
    view.array                                                      # what the client gets, as bytes
    HiddenTools(lists).why(view, ToolId("mail__send"), "mail")      # Why(cause="budget", rank=12, ...)
"""
