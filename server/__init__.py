"""The proxy and its front ends: the only folder with network, processes and a clock."""
