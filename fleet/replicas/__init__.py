"""Sessions that any replica of a proxy serves."""
