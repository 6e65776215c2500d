"""On one device, a forecast from three layers equals the simulated device's prediction of the whole step."""

from __future__ import annotations

import pytest
from small_models import forecaster, small_gpt, small_resnet, whole_step

from polyhal.forecast.recipes import ModelRecipe
from polyhal.forecast.strategy import Strategy
from polyhal.forecast.trace import TraceKey

_SMALL_GPT = small_gpt(layers=5)


@pytest.mark.parametrize(
    ("recipe", "profile", "samples", "dtype"),
    [
        (_SMALL_GPT, "h200", 96, "bfloat16"),  # bound by the device
        (_SMALL_GPT, "h200", 2, "bfloat16"),  # bound by the host, which enqueues kernels
        (_SMALL_GPT, "cpu_2core", 8, "float32"),
        (small_gpt(layers=2), "h200", 16, "float32"),
        (small_resnet(), "h200", 16, "float32"),
    ],
    ids=["device", "host", "processor", "two layers", "no layers"],
)
def test_time_and_memory_equal_the_whole_step(recipe: ModelRecipe, profile: str, samples: int, dtype: str) -> None:
    seconds, nbytes = whole_step(recipe, profile, samples, dtype)
    predicted = forecaster(recipe, f"1x{profile}", dtype=dtype).predict(Strategy(micro_batch=samples))
    # The captured step also waits for the device at its end, some tens of microseconds.
    assert predicted.seconds == pytest.approx(seconds, rel=0.02, abs=60e-6)
    # It makes copies of all layers' weights in half precision by common launches; the forecast frees them layer by layer.
    copies = 0.01 if dtype == "bfloat16" else 0.0
    assert predicted.memory.total == pytest.approx(nbytes, rel=0.03 + copies)


@pytest.mark.parametrize("samples", [1, 4], ids=["loss after its gradients", "loss before them"])
def test_all_gradients_are_complete_at_some_time_of_the_pass(samples: int) -> None:
    known = forecaster(_SMALL_GPT)
    trace = known.trace(TraceKey(samples))
    sections = (trace.after_backward, trace.before_backward, *[trace.backward[1]] * (_SMALL_GPT.layers - 3))
    sections += (trace.backward[0], trace.backward[1], trace.backward[2])
    assert sum(e.nbytes for s in sections for e in s.gradients) == 4 * known.parameters
    for section in sections:
        times = [e.seconds for e in section.gradients]
        assert times == sorted(times)
        assert not times or 0 < times[0] <= times[-1] <= section.seconds
    assert not any(s.gradients for s in (trace.before, trace.after, *trace.forward))


def test_recomputing_takes_longer_and_keeps_less() -> None:
    known = forecaster(_SMALL_GPT)
    kept, again = (known.predict(Strategy(micro_batch=64, recompute=r)) for r in (False, True))
    assert again.seconds > 1.1 * kept.seconds
    assert again.memory.temporaries < 0.6 * kept.memory.temporaries
    # Small copies that are made for all layers at once, before the first, are freed layer by layer.
    boundary = known.trace(TraceKey(64)).boundary
    assert 0.98 * boundary < known.trace(TraceKey(64, recompute=True)).kept <= boundary


def test_passes_whose_gradients_are_added_up_take_as_long_as_all_of_them() -> None:
    known = forecaster(_SMALL_GPT)
    one, four = (known.predict(Strategy(micro_batch=16, passes=n)) for n in (1, 4))
    assert 3.5 * one.seconds < four.seconds < 4.3 * one.seconds
