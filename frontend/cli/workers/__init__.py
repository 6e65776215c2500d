"""Entry points of the subprocesses that commands start: `python -m polyhal.cli.workers.NAME`."""
