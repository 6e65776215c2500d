"""Worker processes of a loader, which read batches on the host and never touch a device.

Processes are spawned, because a forked one would inherit open devices and locks. Batches are sent as pickles with the arrays
as out-of-band buffers, which the worker does not copy.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import numpy as np

from polyhal.data.reading import BatchReader, BatchRequest, StreamEnd
from polyhal.hal.core.settings.processes import signal_text
from polyhal.hal.errors import message
from polyhal.tensor.copying import unpickle_always_on

_POLL = 0.2
"""Interval in seconds at which a waiting process checks whether it should end."""
_END = "end"


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that reads a dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _ThisProcess:
    """Role of this process."""

    worker: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return the number, count, seed and dataset of this worker process; None in the main process."""
    return _ThisProcess.worker


@dataclass(frozen=True)
class _Epoch:
    """Announces an epoch to a worker."""

    number: int
    seed: int


class HostPlacement:
    """Object that sets the NumPy device for all tensors of the process that unpickles it, so that workers open no other."""

    def __reduce__(self) -> Any:
        return place_on_host, ()


def place_on_host() -> HostPlacement:
    """Place the tensors that this process unpickles later on its NumPy device."""
    unpickle_always_on("numpy")
    return HostPlacement()


def run_worker(
    _: HostPlacement,
    worker: int,
    count: int,
    reader: BatchReader,
    init: Callable[[int], Any] | None,
    seed: int,
    tasks: Any,
    results: Any,
) -> None:
    """Serve requests from `tasks` until the sentinel None, or until the main process has exited."""
    from polyhal.hal.core import dispatch
    from polyhal.hal.device import Device

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends its workers
    parent = multiprocessing.parent_process()
    with dispatch.default_device(Device("numpy")), contextlib.suppress(BrokenPipeError):
        failure = _started(worker, count, reader, init, seed)
        epoch = -1
        while True:
            try:
                task = tasks.get(timeout=5)
            except queue.Empty:
                if parent is not None and not parent.is_alive():
                    return
                continue
            if task is None:
                return
            if isinstance(task, _Epoch):
                epoch = task.number
                _seed(worker, count, reader, task.seed)
                reader.restart()
                continue
            _send(results, epoch, task.number, *(failure or _read(worker, reader, task)))


def _started(worker: int, count: int, reader: BatchReader, init: Any, seed: int) -> tuple[str, Any] | None:
    """Call the user's function. Its error is reported in place of batches."""
    _seed(worker, count, reader, seed)
    try:
        if init is not None:
            init(worker)
    except Exception as error:
        return "error", _report(worker, error)
    return None


def _seed(worker: int, count: int, reader: BatchReader, base: int) -> None:
    from polyhal.random import manual_seed

    seed = (base + worker) % 2**63
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)
    _ThisProcess.worker = WorkerInfo(worker, count, seed, reader.dataset)


def _read(worker: int, reader: BatchReader, request: BatchRequest) -> tuple[str, Any]:
    try:
        return "batch", reader.read(request)
    except StreamEnd:
        return _END, None
    except Exception as error:
        return "error", _report(worker, error)


def _report(worker: int, error: Exception) -> tuple[bytes | None, str]:
    """Return the class of an error, if it can be pickled, and its text with the traceback."""
    text = (
        f"{type(error).__name__} in worker process {worker} of a DataLoader; its traceback:\n{traceback.format_exc()}"
    )
    try:
        return pickle.dumps(type(error)), text
    except Exception as unsendable:
        return None, f"{text}\nIts class cannot be sent: {unsendable}"


def _send(results: Any, epoch: int, number: int, kind: str, content: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps((epoch, number, kind, content), 5, buffer_callback=buffers.append)
    except Exception as error:
        buffers = []
        head = pickle.dumps(
            (
                epoch,
                number,
                "error",
                (pickle.dumps(TypeError), f"a batch cannot be sent: {type(error).__name__}: {error}"),
            ),
            5,
        )
    views = [b.raw() for b in buffers]
    results.send((head, [v.nbytes for v in views]))
    for view in views:
        if view.nbytes:
            results.send_bytes(view)


def _receive(results: Any) -> tuple[int, int, str, Any]:
    head, sizes = results.recv()
    buffers = [bytearray(n) for n in sizes]
    for buffer in buffers:
        if buffer:
            results.recv_bytes_into(buffer)
    received: tuple[int, int, str, Any] = pickle.loads(head, buffers=buffers)
    return received


class LoaderWorkers:
    """Worker processes, each with its own queue of tasks and its own pipe of results."""

    def __init__(
        self,
        count: int,
        reader: BatchReader,
        init: Callable[[int], Any] | None,
        seed: int,
        timeout: float,
        prefetch_factor: int,
        context: Any = None,
    ) -> None:
        """Start the processes. Raises TypeError if the dataset or a function cannot be sent to them."""
        spawning: Any = multiprocessing.get_context(context or "spawn") if isinstance(context, str | None) else context
        self._timeout = timeout
        self._outstanding = count * prefetch_factor
        self._epoch = 0
        self.stopping = False
        self._heard: set[int] = set()
        """Workers that have sent a message."""
        self._tasks = [spawning.Queue() for _ in range(count)]
        pipes = [spawning.Pipe(duplex=False) for _ in range(count)]
        self._results = [receiver for receiver, _ in pipes]
        self._processes = [
            spawning.Process(
                target=run_worker,
                args=(HostPlacement(), i, count, reader, init, seed, self._tasks[i], pipes[i][1]),
                name=f"polyhal-data-{i}",
                daemon=True,
            )
            for i in range(count)
        ]
        try:
            for process, (_, sender) in zip(self._processes, pipes, strict=True):
                process.start()
                sender.close()  # the pipe then ends with the worker
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.close()
            raise TypeError(
                message(
                    "DataLoader",
                    f"the dataset or its functions cannot be sent to workers: {error}",
                    expected="classes and functions at the top level of a module",
                    fix="pass num_workers=0 to read in this process",
                )
            ) from error

    def batches(self, requests: Iterable[BatchRequest], seed: int) -> Iterator[Any]:
        """Yield batches in the order of the requests. Raises a worker's error, with its traceback in the text."""
        self._epoch += 1
        self.stopping = False
        for tasks in self._tasks:
            tasks.put(_Epoch(self._epoch, seed))
        source, waiting, ready = iter(requests), 0, {}
        alive, sent, expected = list(range(len(self._tasks))), 0, 0
        turn = 0
        owner: dict[int, int] = {}
        exhausted = False
        while True:
            while not exhausted and alive and waiting < self._outstanding:
                request = next(source, None)
                if request is None:
                    exhausted = True
                    break
                worker = alive[turn % len(alive)]
                turn += 1
                owner[sent] = worker
                self._tasks[worker].put(BatchRequest(sent, request.indices, request.seed))
                sent, waiting = sent + 1, waiting + 1
            if expected == sent:
                return
            while expected not in ready:
                number, result = self._next(owner[expected])
                ready[number] = result
            kind, content = ready.pop(expected)
            worker = owner.pop(expected)
            expected, waiting = expected + 1, waiting - 1
            if kind == "error":
                _raise(content)
            if kind == _END:
                if worker in alive:
                    turn = alive.index(worker)
                    alive.remove(worker)
                continue
            yield content

    def _next(self, worker: int) -> tuple[int, tuple[str, Any]]:
        """Return the next result of a worker in this epoch."""
        started = time.monotonic()
        while True:
            if connection.wait([self._results[worker]], _POLL):
                try:
                    epoch, number, kind, content = _receive(self._results[worker])
                except (EOFError, OSError) as error:
                    raise self._died(worker) from error
                self._heard.add(worker)
                if epoch == self._epoch:
                    return number, (kind, content)
            if self.stopping:
                raise _PoolStopped
            if self._timeout and time.monotonic() - started > self._timeout:
                raise TimeoutError(
                    message(
                        "DataLoader",
                        f"worker {worker} sent no batch within {self._timeout} seconds",
                        fix="raise timeout",
                    )
                )

    def _died(self, worker: int) -> RuntimeError:
        process = self._processes[worker]
        process.join(1)
        code = process.exitcode
        if code is not None and code < 0:
            how, fix = f"was ended by {signal_text(-code)}", "with num_workers=0 it would have ended the program"
        elif code == 1 and worker not in self._heard:  # the exit code of a script that starts processes on import
            how = "ended with code 1 before it read a sample"
            fix = "a script that uses workers must start under `if __name__ == '__main__':`; or pass num_workers=0"
        else:
            how, fix = f"ended with code {code}", "the dataset, or a function of the loader, ends its process"
        return RuntimeError(message("DataLoader", f"worker process {worker} (process {process.pid}) {how}", fix=fix))

    def close(self) -> None:
        """End the processes."""
        self.stopping = True
        for tasks in self._tasks:
            with contextlib.suppress(ValueError, OSError):
                tasks.put(None)
        for results in self._results:
            results.close()  # unblocks a worker that waits to send
        for process in self._processes:
            if process.pid is None:
                continue
            process.join(2)
            if process.is_alive():
                process.terminate()
                process.join()
        for tasks in self._tasks:
            tasks.close()
            tasks.cancel_join_thread()


class _PoolStopped(Exception):  # noqa: N818  never reaches the user
    """The epoch was abandoned."""


def _raise(report: tuple[bytes | None, str]) -> None:
    """Raise a worker's error, with its own class if that can be constructed from a text."""
    pickled, text = report
    if pickled is None:
        raise RuntimeError(text)
    try:
        error = pickle.loads(pickled)(text)
    except Exception as reason:
        raise RuntimeError(
            f"{text}\nIts class cannot be constructed from a text: {type(reason).__name__}: {reason}"
        ) from None
    # StopIteration would end a generator silently.
    raise error if isinstance(error, Exception) and not isinstance(error, StopIteration) else RuntimeError(text)
