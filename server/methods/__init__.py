"""Answers requests: one MCP method or one of our own tools per file."""
