"""Asks a language model how people word wishes that a tool serves."""
