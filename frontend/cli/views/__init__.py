"""Output of commands that is more than a table: progress displays and certificates."""
