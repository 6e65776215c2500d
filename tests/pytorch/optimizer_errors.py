"""Replays the wrong uses of optimizers that PyTorch's database lists: each must raise here too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from polyhal import Device
from tests.pytorch.convert import NoCounterpartError, to_polyhal
from tests.pytorch.outcome import Outcome, describe

_ALLOWED = {
    "as a Tensor is not supported": "tensors are numbers here whatever the flags",
    "betas must be either both floats": "tensors are numbers here whatever the flags",
    "does not support complex": "there are no complex parameters",
}
"""Limits of PyTorch's implementation, by part of the message, and why they are none here."""


def error_cases(entry: Any, kind: type[Any], device: Device, outcome: Callable[..., Outcome]) -> Iterator[Outcome]:
    """Return whether arguments that PyTorch refuses raise ValueError or TypeError here."""
    if entry.optim_error_inputs_func is None:
        return
    for wrong in entry.optim_error_inputs_func("cpu", torch.float32):
        given = wrong.optimizer_error_input
        text = f"wrong use: {given.desc}, {describe([], given.kwargs)}"
        allowed = next((reason for part, reason in _ALLOWED.items() if part in str(wrong.error_regex)), "")
        if allowed:
            yield outcome("senseless", allowed, text)
            continue
        default = [torch.zeros((2, 3), requires_grad=True)]
        try:
            params = to_polyhal(default if given.params is None else given.params, device)
            keywords = to_polyhal(given.kwargs, device)
        except NoCounterpartError as error:
            yield outcome("senseless", str(error), text)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                kind(params, **keywords)
        except (ValueError, TypeError, UserWarning):
            yield outcome("agrees", "", text)
        except Exception as error:
            yield outcome("raises", f"{type(error).__name__}: {error}", text)
        else:
            yield outcome("differs", f"nothing is raised, expected {wrong.error_regex}", text)
