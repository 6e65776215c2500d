"""Ways that can be recorded, for functions of PyTorch that read values of tensors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from polyhal.hal.core.execution.user_line import is_in_library

_OF_FUNCTIONS: dict[Any, str] = {
    F.one_hot: "name the number of classes: one_hot(x, n)",
    torch.istft: "use torch.fft.irfft and torch.nn.functional.fold, which do not check the window",
    torch.repeat_interleave: "name the number of results: repeat_interleave(x, counts, output_size=n)",
    torch.Tensor.repeat_interleave: "name the number of results: x.repeat_interleave(counts, output_size=n)",
    torch.nonzero: "name the number of results: torch.nonzero_static(x, size=n)",
    torch.Tensor.nonzero: "name the number of results: torch.nonzero_static(x, size=n)",
    torch.linalg.inv: "use torch.linalg.inv_ex, which returns errors as a tensor",
    torch.linalg.solve: "use torch.linalg.solve_ex, which returns errors as a tensor",
    torch.linalg.cholesky: "use torch.linalg.cholesky_ex, which returns errors as a tensor",
}
_OF_CODE = {
    ("distributions/", ""): "create the distribution with validate_args=False",
    ("amp/grad_scaler.py", "_maybe_opt_step"): "create the optimizer with fused=True, which skips steps on the device",
    ("nn/utils/clip_grad.py", ""): "clip with error_if_nonfinite=False",
}
"""Remedies by a file of PyTorch, or a folder, and a function in it."""
_FOLDER = Path(torch.__file__).parent.as_posix() + "/"


def remedy(function: object) -> str:
    """Return the remedy for a value that is read now, within `function` of PyTorch if it is not None."""
    return (
        other_way(function) or _of_caller() or "return the tensor and read it outside of the step, or use torch.where"
    )


def other_way(function: object) -> str:
    """Return a call that can be recorded in place of one of `function`; "" if there is none."""
    return _OF_FUNCTIONS.get(function, "")


def _of_caller() -> str:
    """Return the remedy of the code of PyTorch that reads the value for the program; "" if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and is_in_library(frame):
        file = frame.f_code.co_filename
        for (place, name), fix in _OF_CODE.items():
            if file.startswith(_FOLDER + place) and name in ("", frame.f_code.co_name):
                return fix
        frame = frame.f_back
    return ""
