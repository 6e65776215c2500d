"""Agreement with PyTorch: its own databases of sample calls, replayed, and the page of supported names."""
