"""Models and training runs compared with their counterparts in PyTorch. See `python -m
tests.models.parity --help`."""
