"""What does an operator see from outside, in traces and metrics? Imported only where the config asks for it."""
