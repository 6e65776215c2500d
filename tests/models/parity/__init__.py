"""Models and training runs beside the same ones in PyTorch. See `python -m tests.models.parity --help`."""
