"""Checks of a data loader's arguments."""

from __future__ import annotations

from polyhal.hal.errors import message


def check_counts(
    batch_size: int | None,
    prefetch: int,
    num_workers: int,
    timeout: float,
    prefetch_factor: int | None,
    persistent_workers: bool,
) -> None:
    """Raise ValueError for counts out of range, and for settings of workers without workers."""
    problem = expected = fix = ""
    if batch_size is not None and batch_size < 1:
        problem, expected = f"batch_size is {batch_size}", "1 or more"
    elif prefetch < 0 or num_workers < 0 or timeout < 0 or (prefetch_factor is not None and prefetch_factor < 1):
        problem = (
            f"prefetch is {prefetch}, num_workers {num_workers}, timeout {timeout}, prefetch_factor {prefetch_factor}"
        )
        expected = "nothing below 0, and a prefetch_factor of 1 or more"
    elif not num_workers and (prefetch_factor is not None or persistent_workers or timeout):
        problem, fix = "prefetch_factor, persistent_workers and timeout require workers", "pass num_workers"
    if problem:
        raise ValueError(message("DataLoader", problem, expected=expected, fix=fix))


def check_order(
    streams: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: object,
    drop_last: bool,
) -> None:
    """Raise ValueError for arguments that exclude each other."""
    problem = ""
    if streams and (shuffle or sampler is not None or batch_sampler is not None):
        problem = "a stream has a fixed order, and does not support shuffle, sampler or batch_sampler"
    elif sampler is not None and shuffle:
        problem = "sampler and shuffle exclude each other"
    elif batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        problem = "batch_sampler excludes batch_size, shuffle, sampler and drop_last"
    elif batch_size is None and drop_last:
        problem = "drop_last requires batches, and batch_size is None"
    if problem:
        raise ValueError(message("DataLoader", problem, fix="pass one of them"))
