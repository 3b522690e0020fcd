"""How one process of the user finds another that runs a proxy, and talks to it over a local socket."""
