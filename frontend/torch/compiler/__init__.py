"""`torch.compile(model, backend="polyhal")`: compile the graphs of PyTorch's compiler to Polyhal programs.

PyTorch finds the backend by an entry point, so that a program need not import anything. Start reading in `backend.py`.
"""

from __future__ import annotations

from polyhal.torch.compiler.backend import backend

__all__ = ["backend"]
