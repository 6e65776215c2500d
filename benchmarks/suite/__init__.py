"""The benchmarks, one per file. The first line of a file's docstring describes it in `python -m benchmarks --list`."""
