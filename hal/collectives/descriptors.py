"""File descriptors that the processes of one machine give each other, over sockets of the Unix domain.

What other drivers and processes may use, such as memory of a device, is named by a descriptor, which means something in its own
process alone: the kernel makes another one when it carries it over a socket.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from polyhal.hal.collectives.process_group import ProcessGroup

_NAME = 32
"""Bytes of a socket's name."""
_SECONDS = 20.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def all_agree(processes: ProcessGroup, yes: bool) -> bool:
    """Whether all processes say yes. All make this call. Raises ProcessGroupError."""
    answer = np.array([yes], np.int64)
    processes.all_reduce(answer, "min")
    return bool(answer[0])


def on_one_machine(processes: ProcessGroup) -> bool:
    """Whether all processes run under one kernel that passes descriptors on. All make this call. Raises ProcessGroupError."""
    try:
        boot = _BOOT.read_bytes().strip()[:36].ljust(36)
    except OSError:
        boot = secrets.token_bytes(36)
    boots = np.empty(36 * processes.size, np.uint8)
    processes.all_gather(np.frombuffer(boot, np.uint8), boots, [36] * processes.size)
    return len({boots[i : i + 36].tobytes() for i in range(0, len(boots), 36)}) == 1


def exchange_descriptors(processes: ProcessGroup, own: Sequence[int]) -> list[list[int]] | None:
    """Give every other process duplicates of the descriptors `own`. Returns those of each rank, none for the own one.

    All processes of a machine make this call, with as many descriptors each. Returns None, on all of them, if one does not
    get through to another. The caller closes what it gets. Raises ProcessGroupError.
    """
    got: list[list[int]] = [[] for _ in range(processes.size)]
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.settimeout(_SECONDS)
            name = secrets.token_hex(_NAME // 2).encode()
            listener.bind(b"\0" + name)  # a name without a file
            listener.listen(processes.size)
            opened = True
        except OSError:
            opened, name = False, bytes(_NAME)
        names = np.empty(_NAME * processes.size, np.uint8)
        processes.all_gather(np.frombuffer(name, np.uint8), names, [_NAME] * processes.size)
        complete = False
        if all_agree(processes, opened):
            try:
                _exchange(stack, listener, names.tobytes(), processes.rank, own, got)
                complete = True
            except OSError:
                pass
        if all_agree(processes, complete):
            return got
    for descriptor in (d for descriptors in got for d in descriptors):
        os.close(descriptor)
    return None


def _exchange(
    stack: ExitStack, listener: socket.socket, names: bytes, rank: int, own: Sequence[int], got: list[list[int]]
) -> None:
    """Connect to all others, whose kernels keep the connections until they accept them. Raises OSError."""
    connections = []
    for other in range(len(got)):
        if other != rank:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.settimeout(_SECONDS)
            connection.connect(b"\0" + names[other * _NAME : (other + 1) * _NAME])
            connection.sendall(struct.pack("<I", rank))
            connections.append((other, connection))
    for _ in connections:
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(_SECONDS)
            if _user_of(accepted) != os.getuid():
                raise PermissionError("another user connected")
            accepted.recv(4)
            socket.send_fds(accepted, [b"d"], list(own))
    for other, connection in connections:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, len(own))
        got[other] = list(descriptors)
        if len(descriptors) != len(own):
            raise ConnectionError(f"{len(descriptors)} of {len(own)} descriptors arrived")


def _user_of(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
