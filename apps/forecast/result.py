"""Forecasts as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.forecast.curve import CurvePoint
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.prediction import Prediction
from polyhal.forecast.search import Found
from polyhal.forecast.unequal import UnequalForecaster, UnequalPlan


def to_json(forecaster: Forecaster, found: Found, points: Sequence[CurvePoint]) -> dict[str, Any]:
    """Return the contents of a plan."""
    cluster, recipe = found.cluster, forecaster.recipe
    links = {
        name: {"name": link.name, "bytes_per_second": link.bandwidth, "latency_seconds": link.latency}
        for name, link in (("inside", cluster.inside), ("between", cluster.between))
    }
    return {
        "model": recipe.name,
        "parameters": forecaster.parameters,
        "dtype": forecaster.dtype.name,
        "batch": found.batch,
        "unit": recipe.unit,
        "units_per_sample": recipe.units_per_sample,
        "devices": cluster.devices,
        "device": cluster.device,
        "devices_per_node": cluster.per_node,
        "memory_bytes": cluster.memory,
        "links": {**links, "ports_per_node": cluster.ports},
        "strategies": [_prediction(forecaster, p) for p in found.fitting],
        "too_large": [_prediction(forecaster, p) for p in found.too_large],
        "curve": [
            {"devices": p.devices, "efficiency": p.efficiency, **_prediction(forecaster, p.prediction)} for p in points
        ],
    }


def unequal_to_json(forecaster: UnequalForecaster, found: UnequalPlan) -> dict[str, Any]:
    """Return the contents of a plan for several kinds of devices."""
    first = forecaster.forecasters[0]
    return {
        "model": first.recipe.name,
        "parameters": first.parameters,
        "dtype": first.dtype.name,
        "batch": found.batch,
        "unit": first.recipe.unit,
        "shard": found.shard,
        "step_seconds": found.seconds,
        "alone_seconds": found.alone,
        "units_per_second": found.batch / found.seconds * first.recipe.units_per_sample,
        "kinds": [
            {
                "device": share.cluster.device,
                "devices": share.cluster.devices,
                "samples_per_device": share.samples,
                **({} if share.prediction is None else _prediction(known, share.prediction)),
            }
            for known, share in zip(forecaster.forecasters, found.shares, strict=True)
        ],
    }


def _prediction(forecaster: Forecaster, p: Prediction) -> dict[str, Any]:
    s = p.strategy
    return {
        "strategy": str(s),
        "data": s.data,
        "tensor": s.tensor,
        "pipeline": s.pipeline,
        "micro_batch": s.micro_batch,
        "passes": s.passes,
        "shard": s.shard,
        "recompute": s.recompute,
        "layers_per_stage": list(p.layers),
        "step_seconds": p.seconds,
        "compute_seconds": p.compute,
        "tensor_seconds": p.tensor,
        "data_seconds": p.data,
        "hidden_seconds": p.hidden,
        "bubble_seconds": p.bubble,
        "communication_share": p.communication_share,
        "units_per_second": p.samples_per_second * forecaster.recipe.units_per_sample,
        "utilization": forecaster.utilization(p),
        "memory_bytes": {**{name: round(n) for name, n in p.memory._asdict().items()}, "total": round(p.memory.total)},
    }
