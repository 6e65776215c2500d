"""A plug-in whose devices tell everything about their owner, crash and hang, to be installed for a test."""

from __future__ import annotations

from pathlib import Path

MODULE = "leaky_plugin_of_test"
TEXT = """
import ctypes
import os
import time
from dataclasses import replace
from polyhal.backends.numpy.backend import CoreNumpyBackend, create as open_numpy
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import BackendError
from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION

PERSONAL = os.environ.get("LEAKY_TEXT", "")
INFO = replace(open_numpy("").info, backend="leaky", name=f"GPU 9000 {PERSONAL}", driver=f"7.1 {PERSONAL}", id=PERSONAL or "id")

class Leaky(CoreNumpyBackend):
    def __init__(self, selector):
        super().__init__(replace(INFO, selector=selector))
        features = {"fp16": "True", "serial_number": "0323418", "device_uuid": "u", "pci_slot": "3", "board": PERSONAL}
        self.capabilities = replace(self.capabilities, features=features)

    def unary(self, op, x, out):
        if op == "sin" and x.spec.dtype is float32:
            ctypes.string_at(0)  # a crash
        if op == "floor":
            raise BackendError(f"floor fails {PERSONAL}")
        super().unary(op, x, out)

class Hanging(Leaky):
    def unary(self, op, x, out):
        if op == "sqrt" and x.spec.dtype is float32:
            time.sleep(1000)
        super().unary(op, x, out)

class Slow(Leaky):
    def unary(self, op, x, out):
        time.sleep(1000)  # a compiler that takes minutes, for every op

    def binary(self, op, a, b, out):
        time.sleep(1000)

class Refusing(Leaky):
    def matmul(self, a, b, out):
        raise BackendError(f"no products {PERSONAL}")

    def binary(self, op, a, b, out):
        raise BackendError(f"no {op} {PERSONAL}")

def create(selector):
    if selector == "dead":
        ctypes.string_at(0)
    return {"refusing": Refusing, "slow": Slow}.get(selector, Hanging)(selector)

def probe():
    return [replace(INFO, selector=s, id=s) for s in os.environ["LEAKY_DEVICES"].split()]

@hookimpl
def polyhal_backends():
    return [BackendSpec(name="leaky", probe=probe, create=create, api_version=API_VERSION)]
"""


def install(folder: Path) -> None:
    """Put the plug-in into a folder, as pip leaves it."""
    meta = folder / f"{MODULE}-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[polyhal.backends]\nleaky = {MODULE}\n")
    (folder / f"{MODULE}.py").write_text(TEXT)
