"""Programs, a file for each library."""
