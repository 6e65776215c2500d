"""The table of a model: shapes, parameters and arithmetic by layer."""

from __future__ import annotations

import polyhal as ph
from polyhal import nn


def test_a_summary_counts_the_work_of_each_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4, device="numpy"), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2, device="numpy"))
    table = ph.summary(model, (5, 3))
    whole, first, activation, _, last = table.layers
    assert first.output_shapes == ((5, 4),)
    assert first.parameters == 16
    assert first.output_bytes == 5 * 4 * 4
    assert first.flops >= 2 * 5 * 3 * 4
    assert activation.flops == 20
    assert whole.flops >= first.flops + activation.flops + last.flops
    assert table.parameters == table.trainable_parameters == 26
    assert table.parameter_bytes == 104


def test_a_summary_restores_modes_and_prints_every_layer() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3, device="numpy"), nn.Dropout())
    model[1].eval()
    text = str(ph.summary(model, ph.ones((4, 3), device="numpy")))
    assert [m.training for m in model] == [True, False]
    assert model[0].num_batches_tracked.item() == 0  # type: ignore[attr-defined]
    assert "  BatchNorm1d (0)" in text
    assert "(4, 3)" in text
    assert "6 parameters" in text


def test_a_summary_tells_which_layers_were_not_called() -> None:
    model = nn.Linear(2, 2, device="numpy")
    model.add_module("spare", nn.Tanh())
    assert ph.summary(model, (1, 2)).layers[1].calls == 0
