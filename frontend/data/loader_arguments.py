"""Which arguments of a data loader go together."""

from __future__ import annotations

from polyhal.hal.errors import message


def check_order(
    streams: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: object,
    drop_last: bool,
) -> None:
    """Refuse arguments that exclude each other. Raises ValueError."""
    problem = ""
    if streams and (shuffle or sampler is not None or batch_sampler is not None):
        problem = "a stream has its own order, and takes no shuffle, sampler or batch_sampler"
    elif sampler is not None and shuffle:
        problem = "sampler and shuffle exclude each other"
    elif batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        problem = "batch_sampler excludes batch_size, shuffle, sampler and drop_last"
    elif batch_size is None and drop_last:
        problem = "drop_last needs batches, and batch_size is None"
    if problem:
        raise ValueError(message("DataLoader", problem, fix="pass one of them"))
