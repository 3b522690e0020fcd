"""Reads `mcp.json` into frozen values, and says in plain words what is wrong with it."""
