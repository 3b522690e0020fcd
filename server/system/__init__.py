"""Processes and log lines of the operating system."""
