"""`torch.distributed` on the device: `init_process_group("polyhal")` connects the processes of a job.

`gloo.py` makes a Polyhal process group of PyTorch's rendezvous, `group.py` makes PyTorch's process group of that.
"""

from __future__ import annotations

from polyhal.torch.distributed.group import DeviceProcessGroup, connect

__all__ = ["DeviceProcessGroup", "connect"]
