"""Exchange of file descriptors between the processes of one machine, over Unix domain sockets.

A file descriptor identifies a resource that drivers share between processes, such as device memory. It is valid in its own
process only, and the operating system duplicates it when it is sent over a socket.
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
"""Length of a socket's name in bytes."""
_SECONDS = 20.0
"""Timeout of socket operations."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def all_agree(processes: ProcessGroup, yes: bool) -> bool:
    """Return whether `yes` is true in all processes. All processes make this call. Raises ProcessGroupError."""
    answer = np.array([yes], np.int64)
    processes.all_reduce(answer, "min")
    return bool(answer[0])


def on_one_machine(processes: ProcessGroup) -> bool:
    """Return whether all processes run under one Linux kernel. All make this call. Raises ProcessGroupError."""
    try:
        boot = _BOOT.read_bytes().strip()[:36].ljust(36)
    except OSError:
        boot = secrets.token_bytes(36)
    boots = np.empty(36 * processes.size, np.uint8)
    processes.all_gather(np.frombuffer(boot, np.uint8), boots, [36] * processes.size)
    return len({boots[i : i + 36].tobytes() for i in range(0, len(boots), 36)}) == 1


def exchange_descriptors(processes: ProcessGroup, own: Sequence[int]) -> list[list[int]] | None:
    """Send duplicates of the descriptors `own` to every other process. Returns the received descriptors of each rank.

    The list of the own rank is empty. All processes of a machine make this call, with equally many descriptors. Returns None in
    all of them if any exchange fails. The caller owns the returned descriptors. Raises ProcessGroupError.
    """
    received: list[list[int]] = [[] for _ in range(processes.size)]
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
                _exchange(stack, listener, names.tobytes(), processes.rank, own, received)
                complete = True
            except OSError:
                pass
        if all_agree(processes, complete):
            return received
    for descriptor in (d for descriptors in received for d in descriptors):
        os.close(descriptor)
    return None


def _exchange(
    stack: ExitStack, listener: socket.socket, names: bytes, rank: int, own: Sequence[int], received: list[list[int]]
) -> None:
    """Connect to all other processes; connections stay pending until they are accepted. Raises OSError."""
    connections = []
    for other in range(len(received)):
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
        received[other] = list(descriptors)
        if len(descriptors) != len(own):
            raise ConnectionError(f"{len(descriptors)} of {len(own)} descriptors arrived")


def _user_of(connection: socket.socket) -> int:
    """Return the user ID of the process at the other end."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
