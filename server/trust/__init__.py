"""What may reach whom: which calls run, which definitions are approved, and what looks wrong in a server's texts."""
