"""Plays recorded tasks again with other settings, and says what would have happened."""
