"""From a query to scores to a selection: pure, no I/O, no clock."""
