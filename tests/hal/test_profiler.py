"""The profiler's table of ops."""

from __future__ import annotations

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.device import Device


def test_writes_in_place_copies_and_transfers_are_in_the_table(device: Device) -> None:
    x, y = ph.ones((3, 4), device=device), ph.zeros((3, 4), device=device)
    with ph.profile(device) as found:
        x.add_(1.0)
        y.copy_(x)
        y.fill_(2.0)
        x.to(Device("numpy" if device.name != "numpy" else "numpy:no_f64"))
    assert {name: row.calls for name, row in found.ops.items()} == {"add": 1, "copy": 1, "fill": 1, "transfer": 1}


def test_an_optimizer_step_is_in_the_table(device: Device) -> None:
    layer = nn.Linear(4, 3).to(device)
    optimizer = optim.AdamW(layer.parameters())
    layer(ph.ones((2, 4), device=device)).sum().backward()
    with ph.profile(device) as found:
        optimizer.step()
    assert found.ops["adam_step"].calls == 1


def test_the_table_counts_floating_point_operations(device: Device) -> None:
    a = ph.ones((8, 16), device=device)
    with ph.profile(device) as found:
        a @ a.mT
        a.relu_()
    assert found.ops["matmul"].flops == 2 * 8 * 16 * 8
    title, product, *_ = (line for line in found.table().splitlines() if line.startswith(("op ", "matmul")))
    assert title.endswith("GFLOP")
    assert product.split()[-1] == f"{2 * 8 * 16 * 8 / 1e9:.4g}"
