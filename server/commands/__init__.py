"""The commands that people type, one file each, and what they share."""
