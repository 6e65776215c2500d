"""Side-by-side measurements with PyTorch and NumPy: `python -m benchmarks --list` shows them."""
