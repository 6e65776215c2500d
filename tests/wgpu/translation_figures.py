"""Results of naga, spirv-val and dxc for the shaders of described adapters: python tests/wgpu/translation_figures.py

Writes translation_figures.json to this folder. The tools of `backends.wgpu.described.translations` must be installed.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from polyhal.backends.wgpu.described import description
from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.backends.wgpu.described.translations import translate_all
from polyhal.cli.workers.build_workloads import all_workloads
from polyhal.hal.device import Device
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.testing.tuning.kernel_check import lower_samples

PATH = Path(__file__).with_suffix(".json")
ANY_API = ""
WITHOUT_INTEGERS = ("mlp", "cnn")
"""Workloads for adapters without 64-bit integers, whose labels have another dtype."""


def train(backend: WGPUDescribedBackend, device: Device) -> None:
    """Run the training steps whose integer dtypes the device supports."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*only described")
        for name, workload in all_workloads().items():
            if name != "used" and (backend.features.int64 or name in WITHOUT_INTEGERS):
                workload(device)


def shaders(key: str) -> list[NotedShader]:
    """Return the shaders that an adapter builds for samples of all ops and for training steps."""
    backend = WGPUDescribedBackend(description.load(key))
    device = Device.opened(f"described:{key}", backend)
    for op in OPS:
        lower_samples(device, op)
    train(backend, device)
    return list(backend.kernels.shaders)


def figures() -> dict[str, dict[str, int]]:
    """Return, by file, the number of distinct shaders of all adapters and of DirectX 12, and the largest translations.

    Raises KernelBuildError if a tool rejects a shader, and BackendError if one is missing.
    """
    found = {s.text: s for key in description.known() for s in shaders(key)}
    translated = translate_all(found.values(), ANY_API, "any described adapter")
    files: dict[str, dict[str, int]] = {}
    for shader, sizes in translated.items():
        row = files.setdefault(shader.file, {"shaders": 0, "for_d3d12": 0})
        row["shaders"] += 1
        row["for_d3d12"] += "hlsl_bytes" in sizes
        row.update({name: max(row.get(name, 0), nbytes) for name, nbytes in sizes.items()})
    return dict(sorted(files.items()))


if __name__ == "__main__":
    PATH.write_text(json.dumps(figures(), indent=1) + "\n", encoding="utf-8")
