"""PyTorch programs on Polyhal devices: `import polyhal.torch` registers `torch.device("polyhal")`.

`report` lists the ops that did not run on the device.
"""

from __future__ import annotations

import torch as _torch

from polyhal.torch.versions import require

require(_torch.__version__)

from polyhal.torch import default_compiler, default_steps, deferred_compiler  # noqa: E402
from polyhal.torch.conversion import from_polyhal, to_polyhal  # noqa: E402
from polyhal.torch.kernels import register  # noqa: E402
from polyhal.torch.reporting import report, reset_report  # noqa: E402
from polyhal.torch.steps.host_functions import host_function  # noqa: E402
from polyhal.torch.steps.jit import jit  # noqa: E402

register()
default_compiler.install()
default_steps.install()
deferred_compiler.install()

__all__ = ["from_polyhal", "host_function", "jit", "report", "reset_report", "to_polyhal"]
