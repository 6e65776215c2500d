"""Programs of libraries that take any array: tensors in place of NumPy's arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def _tensor() -> ph.Tensor:
    return ph.tensor(ROWS, device="numpy")


def test_pandas_makes_frames_of_tensors() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_tensor().numpy(), columns=["a", "b", "c"])
    columns = pandas.DataFrame({"a": _tensor()[:, 0], "b": _tensor()[:, 1]})
    assert columns["a"].dtype == np.float32
    np.testing.assert_array_equal(columns.to_numpy(), ROWS[:, :2])
    series = pandas.Series(np.asarray(_tensor()[0]))
    np.testing.assert_array_equal(series.to_numpy(), ROWS[0])
    back = ph.tensor(frame.groupby(frame["a"] > 3).sum().to_numpy(), device="numpy")
    np.testing.assert_array_equal(back.numpy(), np.stack([ROWS[:2].sum(0), ROWS[2:].sum(0)]))


def test_matplotlib_draws_tensors() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 4)
    (line,) = axes[0].plot(_tensor()[:, 0], _tensor()[:, 1])
    np.testing.assert_array_equal(line.get_xydata(), ROWS[:, :2])
    image = axes[1].imshow(_tensor())
    np.testing.assert_array_equal(image.get_array(), ROWS)
    counts, _, _ = axes[2].hist(_tensor().reshape(-1).numpy(), bins=3)  # it takes a tensor for a list of data sets
    np.testing.assert_array_equal(counts, np.histogram(ROWS, 3)[0])
    points = axes[3].scatter(_tensor()[:, 0], _tensor()[:, 1], c=_tensor()[:, 2])
    np.testing.assert_array_equal(points.get_offsets(), ROWS[:, :2])


def _sum_of_squares(x: Any) -> Any:
    return (x * x).sum()


def test_joblib_sends_tensors_and_keeps_results(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    tasks = (joblib.delayed(_sum_of_squares)(row) for row in _tensor())
    sums = joblib.Parallel(n_jobs=2, backend="threading")(tasks)
    np.testing.assert_array_equal([float(s) for s in sums], (ROWS * ROWS).sum(1))
    joblib.dump(_tensor(), tmp_path / "x.joblib")
    loaded = joblib.load(tmp_path / "x.joblib")
    assert loaded.device is ph.Device("numpy")
    np.testing.assert_array_equal(loaded.numpy(), ROWS)
    kept = joblib.Memory(tmp_path, verbose=0).cache(_sum_of_squares)
    assert [float(kept(_tensor())) for _ in range(2)] == [float((ROWS * ROWS).sum())] * 2
    assert kept.check_call_in_cache(_tensor())
    assert not kept.check_call_in_cache(_tensor() + 1)


def test_tqdm_counts_rows_of_tensors() -> None:
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(_tensor(), disable=True)
    assert bar.total == len(ROWS)
    np.testing.assert_array_equal([row.tolist() for row in bar], ROWS)


def test_universal_functions_run_on_tensors() -> None:
    x = _tensor()
    for out, expected in (
        (np.exp(x), np.exp(ROWS)),
        (np.signbit(x - 3), np.signbit(ROWS - 3)),
        (np.hypot(x, ROWS), np.hypot(ROWS, ROWS)),
        (ROWS + x, ROWS + ROWS),
        (np.float32(2) * x, 2 * ROWS),
    ):
        assert isinstance(out, ph.Tensor)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(np.add.reduce(x), np.add.reduce(ROWS))
