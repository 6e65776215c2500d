"""`torch.compile(model, backend="polyhal")`: graphs that PyTorch's compiler finds, as programs of Polyhal.

PyTorch finds the backend by an entry point, so that a program need not import anything. `backend.py` is where it begins.
"""

from __future__ import annotations

from polyhal.torch.compiler.backend import backend

__all__ = ["backend"]
