"""Carries messages over pipes and HTTP, to clients on one side and to upstreams on the other."""
