"""The Array API: Polyhal's functions against array-api-strict, and libraries that run on any array of the standard."""
