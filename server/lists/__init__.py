"""What is on the list of tools of a client, and why."""
