"""What other programs' config files say about MCP servers, and how those files and our own are changed."""
