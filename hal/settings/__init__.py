"""Environment variables, settings of the process, and small files that processes share."""
