"""Reads `mcp.json` into frozen values and says in words what is wrong with it."""
