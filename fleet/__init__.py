"""Serves many people from many replicas, under the eyes of operators; imported only where a config asks for it."""
