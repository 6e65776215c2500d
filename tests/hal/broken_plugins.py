"""Plug-ins that violate the rules, each in one way, with the report of `polyhal doctor`."""

from __future__ import annotations

from dataclasses import dataclass

POINT, BACKEND, DEVICE = "entry point {name} = {module}", "backend {name}", "{name}"
"""Subject of a reported problem: the entry point, the backend, or the device."""
UNINSTALL = "update or uninstall {name}"
UPDATE = "update the plug-in"
LATE = "if it only starts slowly, set POLYHAL_PROBE_TIMEOUT=60; POLYHAL_DISABLE={name} excludes it"

CRASHED = "update or uninstall it; POLYHAL_DISABLE={name} excludes it; `polyhal doctor` tries it again"
PACKAGE = "(package {name} 1.0)"
SEGFAULT = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
STUCK = "import re; re.match('(a+)+$', 'a' * 64 + 'b')"
"""Code that holds the interpreter's lock, so that no thread of the same process can time it."""
RIDDLE = """
class Riddle(Exception):
    def __str__(self): raise RuntimeError('no message')
raise Riddle
"""

BEGINNING = """
from dataclasses import replace
import numpy as np
from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create as open_numpy
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceType, Limits
from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION

NAME = __name__.removesuffix("_plugin").replace("_", "-")
INFO = replace(open_numpy("").info, backend=NAME, name=f"device of {NAME}", id=NAME, selector="")

class Backend(CoreNumpyBackend):
    def __init__(self):
        super().__init__(INFO)

def probe():
    return [INFO]

def create(selector):
    return Backend()

def spec(**rest):
    return BackendSpec(**{"name": NAME, "probe": probe, "create": create, "priority": 99, "api_version": API_VERSION} | rest)
"""
"""Common start of all plug-ins. Its priority would make each the default device, if it worked."""


@dataclass(frozen=True)
class Broken:
    """A plug-in, with subject, reason and fix in the report. `{name}` is replaced by its name."""

    name: str
    text: str
    source: str
    line: str
    fix: str

    @property
    def module(self) -> str:
        return self.name.replace("-", "_") + "_plugin"

    def filled(self, text: str) -> str:
        return text.format(name=self.name, module=self.module)


def _importing(name: str, text: str, line: str, fix: str = UNINSTALL) -> Broken:
    return Broken(name, text, POINT, line, fix)


def _hook(name: str, value: str, line: str, fix: str = UNINSTALL, source: str = POINT) -> Broken:
    """Return a plug-in with a hook that returns `value`."""
    return Broken(name, f"{BEGINNING}\n{hook_text(value)}", source, line, fix)


def hook_text(value: str) -> str:
    """Return a plug-in's hook that returns `value`."""
    return f"@hookimpl\ndef polyhal_backends():\n    return {value}\n"


def _spec(name: str, fields: str, line: str, fix: str = UNINSTALL, source: str = POINT) -> Broken:
    """Return a plug-in with a spec that has other fields than in `BEGINNING`."""
    return _hook(name, f"[spec({fields})]", line, fix, source)


def _function(name: str, body: str, source: str, line: str, fix: str, priority: int = 99) -> Broken:
    """Return a plug-in with another `probe`, `create` or `Backend`, defined by `body`."""
    text = f"{BEGINNING}\n{body}\n\n@hookimpl\ndef polyhal_backends():\n    return [spec(priority={priority})]\n"
    return Broken(name, text, source, line, fix)


def _probe(name: str, body: str, line: str, fix: str = UNINSTALL, priority: int = 99) -> Broken:
    return _function(name, f"def probe():\n    {body}", BACKEND, line, fix, priority)


def _info(name: str, fields: str, problem: str) -> Broken:
    line = f"probe returned a device that is left out: {problem}"
    return _probe(name, f"return [replace(INFO, {fields})]", line, UPDATE)


def _create(name: str, body: str, line: str, fix: str = UNINSTALL) -> Broken:
    return _function(name, f"def create(selector):\n    {body}", DEVICE, line, fix)


def _member(name: str, member: str, line: str, priority: int = 99) -> Broken:
    """Return a plug-in with a backend that overrides one member."""
    body = "\n".join(["class Broken(Backend):", *(f"    {part}" for part in member.splitlines()), "Backend = Broken"])
    return _function(name, body, DEVICE, line, UPDATE, priority)


def _initially(statement: str) -> str:
    return f"def __init__(self):\n    super().__init__()\n    {statement}"


CASES = [
    # --- loading ---
    _importing("raises-at-import", "raise RuntimeError('licence expired')", "RuntimeError: licence expired"),
    _importing(
        "needs-a-package",
        "import vendor_runtime",
        "ModuleNotFoundError: No module named 'vendor_runtime'",
        "install the package that provides the module vendor_runtime, or uninstall {name}",
    ),
    _importing(
        "needs-a-library",
        "raise ImportError('libvendor.so.3: cannot open shared object file')",
        "ImportError: libvendor.so.3: cannot open shared object file",
        "install its requirements, or uninstall {name}",
    ),
    _importing("exits-at-import", "import sys; sys.exit(3)", "RuntimeError: it raised SystemExit(3)"),
    _importing("interrupts-at-import", "raise KeyboardInterrupt", "RuntimeError: it raised KeyboardInterrupt()"),
    _importing("hangs-at-import", "import time; time.sleep(600)", "loading it gave no answer within 2 s", LATE),
    _importing("crashes-at-import", SEGFAULT, f"loading it ended the process by SIGSEGV {PACKAGE}", CRASHED),
    _importing(
        "leaves-at-import", "import os; os._exit(0)", f"loading it ended the process with code 0 {PACKAGE}", CRASHED
    ),
    _importing("hangs-uninterruptibly", STUCK, f"loading it gave no answer within 2 s {PACKAGE}", CRASHED),
    _importing("raises-a-riddle", RIDDLE, "Riddle (a message that raises RuntimeError)"),
    _importing("raises-controls", "raise OSError('\\x1b[2J')", "OSError: \ufffd[2J"),
    _importing("bad-syntax", "def (", "SyntaxError: "),
    _importing(
        "no-hook",
        "def polyhal_backends(): return []",
        "{module} has no function polyhal_backends marked with polyhal.hal",
    ),
    _importing(
        "wrong-hook",
        f"{BEGINNING}\n@hookimpl\ndef polyhal_backends(surprise): return []",
        "{module}: polyhal_backends must take no arguments",
    ),
    _hook("raising-hook", "1 / 0", "ZeroDivisionError: division by zero"),
    _hook("returns-a-number", "3", "polyhal_backends returned 3; expected a sequence of BackendSpec"),
    _hook("returns-nothing", "None", "polyhal_backends returned None; expected a sequence of BackendSpec"),
    _hook("returns-text", "'opencl'", "polyhal_backends returned 'opencl'; expected a sequence of BackendSpec"),
    _hook("returns-one", "spec()", "polyhal_backends returned BackendSpec(name='returns-one'"),
    _hook("returns-names", "['opencl']", "polyhal_backends returned 'opencl' in its sequence; expected a BackendSpec"),
    # --- specs ---
    _spec("too-new", "api_version=3", "implements contract version 3; this Polyhal requires 2", "update polyhal"),
    _spec("too-old", "api_version=1", "implements contract version 1; this Polyhal requires 2", UPDATE),
    _hook(
        "states-no-version",
        "[BackendSpec(NAME, probe, create, 99)]",
        "implements contract version 1; this Polyhal requires 2",
        UPDATE,
    ),
    _spec(
        "takes-a-name",
        "name='numpy'",
        "a backend named 'numpy' is already registered by polyhal ",
        "uninstall this plug-in or polyhal",
    ),
    _spec("takes-gpu", "name='gpu'", "name is 'gpu', which is reserved for the best device of a kind on any backend"),
    _spec("strange-name", "name='my gpu:0'", "name is 'my gpu:0'; expected a word without colon"),
    _spec("strange-probe", "probe=7", "probe is 7; expected a function or 'module:function'"),
    _spec("strange-aliases", "aliases='np'", "aliases is 'np'; expected a tuple of names"),
    _spec(
        "takes-an-alias",
        "aliases=('np',), priority=-500",
        "its alias 'np' is taken by the backend 'numpy'",
        "call it '{name}'",
        BACKEND,
    ),
    _spec(
        "alias-is-a-name",
        "aliases=('numpy',), priority=-500",
        "its alias 'numpy' is taken by the backend 'numpy'",
        "call it '{name}'",
        BACKEND,
    ),
    # --- probing ---
    _probe("probe-raises", "raise OSError('no driver')", "OSError: no driver"),
    _probe(
        "probe-advises",
        "error = OSError('no driver'); error.add_note('apt install vendor-driver'); raise error",
        "OSError: no driver",
        "apt install vendor-driver",
    ),
    _probe("probe-exits", "raise SystemExit('no licence')", "RuntimeError: it raised SystemExit('no licence')"),
    _probe("probe-interrupts", "raise KeyboardInterrupt", "RuntimeError: it raised KeyboardInterrupt()"),
    _probe("probe-hangs", "import time; time.sleep(600)", "probing for devices gave no answer within 2 s", LATE),
    _probe("probe-crashes", SEGFAULT, f"probing for devices ended the process by SIGSEGV {PACKAGE}", CRASHED),
    _probe(
        "probe-aborts",
        "import os, sys; print('assertion failed: licence', file=sys.stderr, flush=True); os.abort()",
        f"probing for devices ended the process by SIGABRT: assertion failed: licence {PACKAGE}",
        CRASHED,
    ),
    _probe(
        "probe-leaves",
        "import os; os._exit(7)",
        f"probing for devices ended the process with code 7 {PACKAGE}",
        CRASHED,
    ),
    _probe("probe-riddle", f"exec({RIDDLE!r})", "Riddle (a message that raises RuntimeError)"),
    _probe(
        "probe-base", "class Stop(BaseException): pass\n    raise Stop('now')", "RuntimeError: it raised Stop('now')"
    ),
    _probe(
        "probe-mute",
        "class Mute:\n        def __repr__(self): raise OSError\n    return [Mute()]",
        "left out: it is a Mute (its repr raises OSError)",
        UPDATE,
    ),
    _probe("probe-number", "return 3", "probe returned 3; expected a sequence of DeviceInfo", UPDATE),
    _spec("probe-lost", "probe='nowhere:f'", "ModuleNotFoundError: No module named 'nowhere'", UNINSTALL, BACKEND),
    _probe("info-text", "return ['a device']", "left out: it is 'a device'; expected a DeviceInfo", UPDATE),
    _info("info-foreign", "backend='opencl'", "its backend is 'opencl'; expected 'info-foreign'"),
    _info("info-memory", "memory=-1", "its memory is -1; expected a number of bytes"),
    _info("info-type", "type='gpu'", "its type is 'gpu'; expected a DeviceType"),
    _info("info-name", "name=None", "its name is None; expected text"),
    _info("info-id", "id=''", "its id is ''; expected text"),
    _probe("info-twice", "return [INFO, INFO]", "left out: two devices have the selector ''", UPDATE, priority=-500),
    # --- opening ---
    _create("create-raises", "raise RuntimeError('out of licences')", "RuntimeError: out of licences"),
    _create("create-crashes", SEGFAULT, f"opening it ended the process by SIGSEGV {PACKAGE}", CRASHED),
    _create("create-riddle", f"exec({RIDDLE!r})", "Riddle (a message that raises RuntimeError)"),
    _create("create-base", "class Stop(BaseException): pass\n    raise Stop('now')", "Stop: now"),
    _create("create-exits", "raise SystemExit(3)", "SystemExit: 3"),
    _function(
        "create-wrong", "def create(): ...", DEVICE, "TypeError: create() takes 0 positional arguments", UNINSTALL
    ),
    _create(
        "create-nothing",
        "return None",
        "NoneType breaks the contract: info is missing; capabilities is missing; memory_available() is missing",
        UPDATE,
    ),
    _create(
        "opened-another", "return open_numpy('')", "info: its backend is 'numpy'; expected 'opened-another'", UPDATE
    ),
    _member(
        "member-missing", "scatter_add = None", "Broken breaks the contract: scatter_add(index, src, out) is missing"
    ),
    _member("member-number", "matmul = 3", "matmul is 3; expected a method matmul(a, b, out)"),
    _member(
        "member-short",
        "def copy_to_device(self, src: memoryview, dst: object) -> None: ...",
        "copy_to_device is declared as copy_to_device(src, dst); expected copy_to_device(src, dst, offset)",
    ),
    _member(
        "member-keyword",
        "def where(self, cond, *, a, b, out): ...",
        "where is declared as where(cond, *, a, b, out); expected where(cond, a, b, out)",
    ),
    _member(
        "member-optional",
        "def lower(self, op): ...",
        "lower is declared as lower(op); expected lower(op, inputs, outputs, params)",
    ),
    _member("no-capabilities", _initially("self.capabilities = 3"), "capabilities is 3; expected Capabilities"),
    _member(
        "strange-storage",
        _initially("self.capabilities = Capabilities(storage=frozenset({'float32'}))"),
        "capabilities.storage has ['float32']; expected a frozenset of DType",
    ),
    _member(
        "strange-limits",
        _initially("self.capabilities = Capabilities(limits=Limits(row_alignment=0))"),
        "capabilities.limits.row_alignment is 0; expected a number",
    ),
]

LIARS = [
    _member(
        "raises-on-half",
        """def binary(self, op, a, b, out):
    if a.dtype is dtypes.float16:
        raise NotImplementedError('no half')
    super().binary(op, a, b, out)""",
        "float16 is claimed, but it raises NotImplementedError: no half",
        priority=-500,
    ),
    _member(
        "wrong-on-bfloat",
        """def binary(self, op, a, b, out):
    super().binary(op, a, b, out)
    if a.dtype is dtypes.bfloat16:
        array(out).view(np.uint16)[...] += 1""",
        "bfloat16 is claimed, but a sum is wrong",
        priority=-500,
    ),
    _member(
        "truncates-int64",
        """def copy(self, src, out):
    super().copy(src, out)
    if src.dtype is dtypes.int64:
        array(out)[...] &= 15""",
        "int64 is claimed, but a reversed copy came back changed",
        priority=-500,
    ),
]
"""Devices that open, and claim unsupported dtypes."""
