"""Trains models from the log, replays later tasks, and promotes what ranks them better."""
