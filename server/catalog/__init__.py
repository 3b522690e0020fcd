"""Every tool of every upstream, its exposed name, and the search over all of them."""
