"""Environment variables, settings of the process, and small files shared by processes."""
