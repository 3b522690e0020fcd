"""Raw MCP clients for measuring, over stdio and HTTP."""
