"""The servers behind us: their connections, their life, and the registry of all of them."""
