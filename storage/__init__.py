"""What we keep; knows nothing of ranking or of MCP."""
