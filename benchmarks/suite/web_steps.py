"""Exported pages against onnxruntime-web in the same headless browser, and against the wgpu device in Python.

All infer the same models on the same adapter, in alternation, from an array to an array. Results are compared first. Chromium's
software adapter is used where there is no GPU, and its Vulkan driver by Python, too. It needs Chromium, and npm for the other
runtimes, which are kept in Polyhal's cache folder. Exits with code 1 if results differ.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import polyhal
import polyhal.onnx
from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import SETTLE_SECONDS, summarize
from benchmarks.web.packages import PACKAGES, Server, install
from polyhal import Device, export
from polyhal.export.web import MODULES
from polyhal.hal.core.settings import env
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import Module

TOLERANCE = 1e-4
"""Maximum difference of results, relative to the largest element: sums of some thousand terms in float32."""
PAGE, PYTHON = "Polyhal's page", "wgpu in Python"
PEERS = {"onnxruntime-web, WebGPU": "webgpu", "onnxruntime-web, WASM": "wasm"}
_DRIVER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
_RNG = np.random.default_rng(0)


def _images(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _tokens(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 64, shape).astype(np.int32)


_GPT = GPTConfig(vocab_size=64, block_size=64, n_layer=4, n_head=4, n_embd=128)
MODELS: dict[str, tuple[str, Callable[[Device], Module], np.ndarray]] = {
    "mlp": ("MLP 784-512-10, batch 64", lambda device: MLP((784, 512, 10)).to(device), _images(64, 784)),
    "cnn": ("CNN of digits, batch 64", lambda device: CNN().to(device), _images(64, 1, 8, 8)),
    "gpt": ("GPT of 4 layers of 128, 64 tokens", lambda device: GPT(_GPT, device=device), _tokens(1, 64)),
}
"""Title, module and input of each model."""


class Comparison:
    """One model in all runtimes: files that the page loads, and calls that infer once."""

    def __init__(self, name: str, device: Device, folder: Path) -> None:
        self.name = name
        self.title, make, self.x = MODELS[name]
        polyhal.manual_seed(0)
        model = make(device).eval()
        self._device = device

        @polyhal.jit
        def step(x: polyhal.Tensor) -> polyhal.Tensor:
            found: polyhal.Tensor = model(x)
            return found

        self._step = step
        for _ in range(3):
            self.expected = self.python()
        export.webgpu(step, folder / name, inputs=["x"], outputs=["y"])
        given = polyhal.tensor(self.x, device=device)
        polyhal.onnx.export(model, given, folder / f"{name}.onnx", input_names=["x"])
        (folder / f"{name}.bin").write_bytes(self.x.tobytes())

    def python(self) -> np.ndarray:
        """Infer once in Python."""
        with polyhal.no_grad():
            return self._step(polyhal.tensor(self.x, device=self._device)).numpy()  # type: ignore[no-any-return]

    def options(self, provider: str = "") -> dict[str, Any]:
        """Return the options of a competitor in the page."""
        return {"model": self.name, "dtype": self.x.dtype.name, "shape": list(self.x.shape), "provider": provider}


def measure(browser: Any, comparison: Comparison, peers: dict[str, str], repetitions: int) -> dict[str, Any]:
    """Measure one model. Returns a row with seconds per call."""
    makers = {PAGE: ("polyhal", "")} | {name: ("onnxruntime", provider) for name, provider in peers.items()}
    first, differences, calls = {}, {}, {}
    for name, (maker, provider) in makers.items():
        words = ", ".join(json.dumps(x) for x in (name, maker, comparison.options(provider)))
        found = browser.evaluate(f"bench.prepare({words})")
        first[name] = found["ms"] / 1e3
        result, expected = np.array(found["result"], np.float32), comparison.expected.ravel()
        differences[name] = float(abs(result - expected).max() / abs(expected).max())

    def seconds(name: str, count: int) -> float:
        if name in makers:
            return float(browser.evaluate(f"bench.time({json.dumps(name)}, {count})")) / 1e3
        begin = time.perf_counter()
        for _ in range(count):
            comparison.python()
        return time.perf_counter() - begin

    samples: dict[str, list[float]] = {name: [] for name in [*makers, PYTHON]}
    for name in samples:
        seconds(name, 2)
        calls[name] = max(1, round(0.1 / min(seconds(name, 1) for _ in range(3))))
    for _ in range(repetitions):
        for name, times in samples.items():
            time.sleep(SETTLE_SECONDS)
            times.append(seconds(name, calls[name]) / calls[name])
    timings = {name: summarize(times) for name, times in samples.items()}
    for name, timing in timings.items():
        print(f"{comparison.title}: {name} {timing.text(1e3, 'ms')}", flush=True)
    return {
        "model": comparison.title,
        "first": first,
        "difference": differences,
        "who": {name: [t.median, t.low, t.high] for name, t in timings.items()},
    }


def _index() -> str:
    imports = {name: f"/runtime/{file}" for name, file in MODULES.items()}
    return (
        f'<!doctype html><script type="importmap">{json.dumps({"imports": imports})}</script>'
        '<script type="module" src="/peers/peers.js"></script>'
    )


def main(arguments: Sequence[str]) -> int:
    """Measure, and return 1 if results differ."""
    from tests.export.chromium import PROGRAM, Chromium

    parser = make_parser("web_steps", __doc__, "wgpu")
    parser.add_argument(
        "--models", type=lambda t: choices(t, tuple(MODELS)), default=list(MODELS), help=",".join(MODELS)
    )
    parser.add_argument("--repetitions", type=int, default=15, help="samples of each competitor; default: 15")
    parser.add_argument("--packages", type=Path, help="folder of npm packages; default: one in the cache folder")
    parser.add_argument("--only-polyhal", action="store_true", help="measure no other runtime, and fetch nothing")
    chosen = parser.parse_args(arguments)
    if PROGRAM is None:
        raise OSError("there is no Chromium; Debian, Ubuntu: apt install chromium")
    peers = {} if chosen.only_polyhal else PEERS
    modules = install(chosen.packages or env.cache_dir() / "web-packages") if peers else Path("/nowhere")
    if _DRIVER.exists():
        os.environ.setdefault("VK_DRIVER_FILES", str(_DRIVER))  # the browser's adapter, for Python
    device = Device(chosen.devices)
    with tempfile.TemporaryDirectory(prefix="polyhal-web-") as made:
        work = Path(made)
        (work / "index.html").write_text(_index())
        comparisons = [Comparison(name, device, work) for name in chosen.models]
        runtime = Path(export.__file__).parent / "browser"
        here = Path(__file__).parents[1] / "web"
        server = Server(
            {"work": work, "runtime": runtime, "peers": here, "onnxruntime": modules / "onnxruntime-web" / "dist"}
        )
        browser = Chromium()
        try:
            browser.open(f"{server.address}/work/index.html")
            browser.wait_for("window.bench")
            adapter = browser.evaluate(
                "navigator.gpu.requestAdapter().then((a) => [a.info.vendor, a.info.architecture, a.info.description].join(' '))"
            )
            rows = [measure(browser, c, peers, chosen.repetitions) for c in comparisons]
        finally:
            browser.close()
            server.close()
    about = {"adapter": adapter.strip(), "packages": PACKAGES if peers else {}}
    write(chosen.json, {"benchmark": "web_steps", **describe_machine([device]), **about, "rows": rows})
    return int(any(d > TOLERANCE for row in rows for d in row["difference"].values()))
