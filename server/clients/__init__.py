"""The clients in front of us: their requests, sessions, and the list of tools that each sees."""
