"""Side-by-side measurements; each module runs on its own: `python -m benchmarks.overhead`."""
