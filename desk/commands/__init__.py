"""The commands of this pack."""
