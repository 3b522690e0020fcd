"""The version of foretool, in one module that imports nothing."""

__version__ = "0.1.0"
