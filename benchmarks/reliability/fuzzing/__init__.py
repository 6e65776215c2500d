"""Damaged and hostile files for every format that Polyhal reads, and a process that reads them under supervision."""
