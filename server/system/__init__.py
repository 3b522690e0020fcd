"""Processes, memory and log lines of the operating system."""
