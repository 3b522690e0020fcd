"""Every subject of the store in SQL that all engines understand; the folders beside this one each have an engine."""
