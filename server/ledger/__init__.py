"""What was missed, changed and learned, and what the user can do about it: what commands and the page share."""
