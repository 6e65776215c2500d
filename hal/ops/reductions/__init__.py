"""Reductions, scans and sorting: ops along axes."""
