"""What commands show that takes more than a table: progress and certificates."""
