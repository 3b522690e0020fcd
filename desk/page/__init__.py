"""The page: the miss ledger, the tools and the servers in a browser. Nothing of it is imported by a proxy."""
