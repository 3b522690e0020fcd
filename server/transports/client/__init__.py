"""Transports to clients: stdio and HTTP. Each turns bytes into messages for the proxy."""
