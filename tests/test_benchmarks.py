"""The benchmarks compare like with like, count bytes and operations correctly, and are all run by one command."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import benchmarks.__main__ as door
from benchmarks import inference_workloads, layer_workloads, report, torch_models, training_workloads
from benchmarks.frameworks import layers, numpy_, ours, pytorch
from benchmarks.op_workloads import OpWorkload, workloads
from benchmarks.suite import collectives, guard, pairs, processes, published, replay
from benchmarks.timing import summarize
from polyhal import Device
from polyhal.hal.system.discovery.registry import registry
from polyhal.models.bert import Bert, BertConfig

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
_LARGEST = 12
"""Axes are cut down to this length; the computation stays the same."""


def _small(workload: OpWorkload) -> OpWorkload:
    shapes = tuple(None if s is None else _cut(s) for s in workload.shapes)
    expanded = {i: _cut(s) for i, s in workload.expanded.items()}
    params = {k: min(v, _LARGEST) if k in ("k", "groups") else v for k, v in workload.params.items()}
    indices = {i: min(n, _LARGEST) for i, n in workload.indices.items()}
    return replace(workload, shapes=shapes, params=params, indices=indices, expanded=expanded)


def _cut(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(n, _LARGEST) for n in shape)


ALL = {w.name: w for size in ("cpu", "gpu") for w in workloads(size)}


@pytest.mark.parametrize("name", ALL)
def test_frameworks_compute_the_same(name):
    workload = _small(ALL[name])
    device = Device("numpy")
    others = {**numpy_.competitors(), **pytorch.competitors(gpu=False)}
    expected = ours.competitors([device])[device.name].prepare(workload).result()
    runners = [r for r in (c.prepare(workload) for c in others.values()) if not isinstance(r, str)]
    assert runners
    # Frameworks round half-precision intermediates in different places: 3 significant digits with bfloat16.
    tolerance = 1e-5 if workload.dtype == "float32" else 2e-2
    for runner in runners:
        np.testing.assert_allclose(runner.result(), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


_LAYERS = (
    layer_workloads._conv1d(2, 3, 4, 5, 9),
    layer_workloads._transposed(1, 3, 2, 4, 5),
    layer_workloads._depthwise(1, 3, 6, stride=2),
    layer_workloads._interpolate("bicubic", 1, 2, 5),
    layer_workloads._scatter_add(7, 3, 4),
    layer_workloads._index_add(7, 3, 4),
    *layer_workloads._einsums(2, 3, 2, 4, 5),
    layer_workloads._embedding_bag(9, 3, 4, 2, True),
)


@pytest.mark.parametrize("workload", _LAYERS, ids=lambda w: w.name)
def test_layers_and_their_gradients_are_the_same_in_pytorch(workload):
    (out, grads) = layers.polyhal_calls(workload, Device("numpy"), True)["eager"]()
    expected, expected_grads = layers.torch_calls(workload, "cpu", True, False)["PyTorch"]()
    for result, other in zip((out, *grads), (expected, *expected_grads), strict=True):
        np.testing.assert_allclose(result.numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_rows_that_are_written_are_the_same_in_pytorch():
    workload = layer_workloads._write_rows(3, 2, 50)
    written = layers.polyhal_calls(workload, Device("numpy"), False)["eager"]()
    expected = layers.torch_calls(workload, "cpu", False, False)["PyTorch"]()
    np.testing.assert_array_equal(written.numpy(), expected.numpy())


@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_names_are_unique(size):
    names = [w.name for w in workloads(size)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "nbytes", "flops"),
    [
        ("add", 3 * 4 * 2**22, 0),
        ("sum", 4 * 2**22 + 4, 0),
        ("matmul 1000x777x1333", 0, 2 * 1000 * 777 * 1333),
        ("conv 3x3", 0, 2 * 4 * 64 * 56 * 56 * 64 * 9),
        ("attention 4x8x256x64", 0, 2 * 4 * 8 * 256 * 256 * 64),
        ("attention 4x8x256x64 and gradients", 0, 7 * 4 * 8 * 256 * 256 * 64),
    ],
)
def test_counts(name, nbytes, flops):
    assert {w.name: w for w in workloads("cpu")}[name].work() == (nbytes, flops)


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_training_steps_learn_alike(name):
    """Both models start with their own random weights; their losses fall from guessing at the same pace."""
    workload = training_workloads.WORKLOADS[name]
    if workload.config is not None:
        config = replace(workload.config, n_layer=1, n_embd=32, block_size=16)
        workload = replace(workload, config=config, inputs=(4, 16))
    own = workload.polyhal_step(Device("numpy"), "highest", captured=False)
    peer = workload.torch_step("cpu", "highest")
    losses = np.array([[step().item() for step in (own, peer)] for _ in range(8)])
    # Guessing among n classes costs log n; random initial weights change that a little.
    guess = np.log(workload.config.vocab_size if workload.config else 10)
    np.testing.assert_allclose(losses[0], guess, rtol=0.1)
    assert (losses[-1] < losses[0]).all()
    np.testing.assert_allclose(losses[-1, 0], losses[-1, 1], rtol=0.15)


def test_inference_models_are_alike():
    """BERTs of one configuration have as many parameters and equal results: shapes, and mean squares.

    Hidden states come from a layer norm whose scale is one: their mean square is one whatever the weights are.
    """
    config = BertConfig(100, 32, 2, 2, 128, 16)
    workload = replace(inference_workloads.WORKLOADS["bert-1x128"], config=config, inputs=(2, 8))
    own = workload.polyhal_step(Device("numpy"), "float32", captured=False)()
    peer = workload.torch_step("cpu", "float32")()
    assert [tuple(x.shape) for x in own] == [tuple(x.shape) for x in peer] == [(2, 8, 32), (2, 32)]
    np.testing.assert_allclose(np.square(own[0].numpy()).mean(), np.square(peer[0].numpy()).mean(), rtol=1e-3)
    count = sum(p.numel() for p in torch_models.Bert(config).parameters())
    assert sum(p.size for p in Bert(config).parameters()) == count


def test_the_page_is_what_the_results_say():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.results())


def test_the_simulators_page_shows_predictions_as_measured():
    text = report.SIMULATOR_PAGE.read_text(encoding="utf-8")
    assert text == report.simulator_page(text, report.results())
    for result in report.results():
        if result["benchmark"] == "prediction":
            assert len(result["rows"]) >= 5
            assert all(row["what"] in text for row in result["rows"])


def test_the_planning_page_shows_forecasts_beside_measurements():
    text = report.PLANNING_PAGE.read_text(encoding="utf-8")
    assert text == report.planning_page(text, report.results())
    rows = [row for r in report.results() if r["benchmark"] == "published" for row in r["rows"]]
    assert {row["devices"]: row["forecast_teraflops"] / row["teraflops"] for row in rows if not row["fits"]}.keys() <= {
        3072
    }
    assert all(0.7 < row["forecast_teraflops"] / row["teraflops"] < 1.3 for row in rows)
    assert len(rows) == len(published.RUNS)
    measured = [row for r in report.results() if r["benchmark"] == "scaling" for row in r["rows"]]
    assert {len(row["devices"]) for row in measured} >= {1, 2}
    assert all(0.8 < row["forecast_ms"] / row["ms"] < 1.2 for row in measured)


def test_predictions_of_training_steps_are_near_the_measured_ones():
    """Except for half precision, whose many short kernels the model makes too fast."""
    rows = [row for r in report.results() if r["benchmark"] == "prediction" for row in r["rows"]]
    assert {row["model"] for row in rows} >= {"mlp", "cnn", "gpt", "resnet"}
    off = {(r["model"], r["device"]): r["predicted_ms"] / r["ms"] for r in rows if r["precision"] == "highest"}
    assert {name: ratio for name, ratio in off.items() if not 0.7 <= ratio <= 1.3} == {}


def test_the_page_has_a_section_for_every_benchmark():
    assert set(report._SECTIONS) == set(door.NAMES) - {"guard", "profiler"}, (
        "they compare with a limit, and have no results"
    )


def test_the_page_leaves_out_rates_that_were_not_measured():
    assert "copies 0 GB/s" not in report.page(report.results())
    device = {"name": "d", "driver": "v", "type": "cpu"}
    assert report._device("d:0", device, {"bytes_per_s": 0.0, "flops_per_s": 0.0}) == "`d:0` (d, v)"


def run_door(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


def test_every_file_of_the_suite_is_listed_with_one_line():
    done = run_door("--list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(p.stem for p in door.SUITE.glob("[!_]*.py"))
    assert [line for line in lines if len(line) > 128 or len(line.split()) < 6] == []


@pytest.mark.parametrize("name", door.NAMES)
def test_every_benchmark_explains_its_options(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        import_module(f"benchmarks.suite.{name}").main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"python -m benchmarks {name}" in out
    assert "--devices" in out
    assert "--json" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["kernel"], "there is no benchmark 'kernel'"),
        (["peak", "--devices", "opencl:99"], "peak: device 'opencl:99' is not available"),
        (["peak", "--devices", "numpy", "--size", "gpu"], "unrecognized arguments"),
        (["training_step", "--models", "vgg"], "'vgg' is unknown; expected any of mlp, cnn"),
        (["peak", "replay", "--json", "x.json"], "use --json-dir with several benchmarks"),
        (["peak", "--devices", "numpy", "--json", "/no/such/folder/x.json"], "No such file or directory"),
    ],
)
def test_bad_arguments_are_one_message(arguments, expected, capsys):
    with pytest.raises(SystemExit) as stopped:
        sys.exit(door.main(arguments))
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err


def test_without_a_name_everything_is_run(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(door, "_run_in_subprocess", lambda *arguments: started.append(arguments) or 0)
    assert door.main(["--devices", "numpy", "--json-dir", str(tmp_path / "new")]) == 0
    assert [name for name, *_ in started] == list(door.NAMES)
    assert {tuple(options) for _, options, _ in started} == {("--devices", "numpy")}
    assert (tmp_path / "new").is_dir()


def test_several_benchmarks_write_a_file_each(tmp_path):
    done = run_door("peak", "overhead", "replay", "--devices", "numpy", "--json-dir", tmp_path)
    assert done.returncode in (0, 1), done.stderr  # 1 on a machine that is too slow for the limits
    assert "=== peak: Peak rates of each device" in done.stdout
    assert "numpy is skipped" in done.stdout
    files = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    assert set(files) == {"peak", "overhead", "replay"}
    for name, result in files.items():
        assert result["benchmark"] == name
        assert result["devices"].keys() <= {"numpy"}
    assert files["peak"]["rows"][0]["bytes_per_s"] > 0
    for row in files["overhead"]["rows"]:
        median, low, high = row["us"]
        assert 0 < low <= median <= high
    page = report.page({"place": "here", **result} for result in files.values())
    assert "## here: framework overhead per op" in page


@pytest.mark.parametrize(
    ("kind", "size", "moved"),
    [
        # Each of two devices sends half its vector, and its half of the sums.
        ("all_reduce", 2, 8.0),
        ("all_reduce", 8, 14.0),
        ("reduce_scatter", 4, 6.0),
        ("all_gather", 2, 4.0),
        ("broadcast", 4, 8.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(kind, size, moved):
    assert collectives.bus_bytes(kind, 8, size) == moved


def test_collectives_are_measured(tmp_path):
    options = ["--devices", "numpy,numpy:no_f64", "--kinds", ",".join(collectives.KINDS), "--sizes", "4KiB"]
    assert collectives.main([*options, "--repetitions", "2", "--json", str(tmp_path / "x.json")]) == 0
    result = json.loads((tmp_path / "x.json").read_text())
    assert [(r["kind"], r["dtype"]) for r in result["rows"]] == [
        (kind, dtype) for kind in collectives.KINDS for dtype in ("float32", "bfloat16")
    ]
    assert "| `all_reduce` | 2 | float32 | 4 KiB |" in report.page([{"place": "here", **result}])


def test_language_models_of_files_are_measured(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    from benchmarks import random_language_models
    from benchmarks.suite import language_models

    monkeypatch.setattr(language_models, "_read_rate", lambda device: 1e9)
    random_language_models.main(str(tmp_path), "tiny:Q4_K_M")
    out = tmp_path / "out.json"
    sizes = ["--prompt", "8", "--tokens", "2", "--rounds", "1", "--batch", "3"]
    language_models.main(
        ["--devices", "numpy", "--files", str(tmp_path / "tiny-Q4_K_M.gguf"), *sizes, "--json", str(out)]
    )
    result = json.loads(out.read_text())
    one, three = (row["who"]["numpy"]["decode"][0] for row in result["rows"])
    assert min(one, three) > 0
    assert result["rows"][1]["bytes"] * 3 == result["rows"][0]["bytes"]
    page = report.page([{"place": "here", **result}])
    assert "language models in GGUF files" in page
    assert "| tiny-Q4_K_M.gguf |" in page
    assert "| tiny-Q4_K_M.gguf, 3 at once |" in page


def test_pairs_are_measured(tmp_path, monkeypatch):
    tiny = replace(training_workloads.WORKLOADS["gpt"], inputs=(2, 8))
    tiny = replace(tiny, config=replace(tiny.config, block_size=8, n_layer=1, n_embd=16, n_head=2))
    monkeypatch.setitem(training_workloads.WORKLOADS, "gpt", tiny)
    options = ["--devices", "numpy,numpy:no_f64", "--slower", "3", "--rows", "4", "--repetitions", "2"]
    assert pairs.main([*options, "--json", str(tmp_path / "x.json")]) == 0
    result = json.loads((tmp_path / "x.json").read_text())
    (row,) = result["rows"]
    assert list(row["who"]) == ["first", "second", "pair, even", "pair, by speed"]
    assert 1 < row["most"] < 2
    assert "`numpy:no_f64 at 1/3`" in report.page([{"place": "here", **result}])


def test_processes_are_measured(tmp_path):
    pytest.importorskip("mpi4py", reason="needs mpi4py: pip install 'polyhal[distributed]'")
    options = ["--devices", "numpy,numpy:no_f64", "--samples", "1", "--repetitions", "2"]
    assert processes.main([*options, "--json", str(tmp_path / "x.json")]) == 0
    result = json.loads((tmp_path / "x.json").read_text())
    (row,) = result["rows"]
    assert set(row["who"]) == {"one device", "one device, afterwards", "2 devices, one process", "2 processes"}
    assert all(0 < t["low_ms"] <= t["ms"] <= t["high_ms"] for t in row["who"].values())
    assert "| 1 | `numpy` and `numpy:no_f64` |" in report.page([{"place": "here", **result}])


@pytest.mark.skipif(not registry().probe("opencl"), reason="there is no OpenCL device")
def test_replay_still_finds_what_a_backend_records():
    row = replay.measure(Device("opencl"), repetitions=2)
    assert row["launches"] > 50
    assert list(row["who"]) == ["captured step", "bare calls, cffi", "bare calls, pyopencl", "eager step"]
    assert all(low <= median <= high for median, low, high in row["who"].values())


def test_guard_accepts_noise_and_finds_slower_rows():
    devices = ["opencl:0"]
    seconds = {"opencl:0": [1.0, 0.98, 1.02], "slow": [9, 9, 9], "peer": [1.2, 1.18, 1.22]}
    committed = guard.ratio(seconds, "opencl:0", devices)
    assert committed is not None
    assert committed.value == pytest.approx(1.2)
    assert guard.verdict(committed, guard.Ratio(1.1, 0.02)) == "ok", "within the least tolerance"
    assert guard.verdict(committed, guard.Ratio(1.0, 0.02)) == "SLOWER"
    assert guard.verdict(committed, guard.Ratio(1.0, 0.15)) == "ok", "explained by the spread"
    assert guard.verdict(committed, guard.Ratio(0.5, 0.5)) == "too noisy"
    assert guard.ratio({"opencl:0": [1.0, 1.0, 1.0]}, "opencl:0", devices) is None


@pytest.mark.parametrize("size", guard.ROWS)
def test_guarded_rows_are_committed(size):
    committed = {row["name"]: row for row in json.loads(guard.FILES[size].read_text(encoding="utf-8"))["rows"]}
    measured = {w.name for w in workloads(size)}
    for name in guard.ROWS[size]:
        assert name in measured
        assert guard.ratio(committed[name]["seconds"], "opencl:0", ["opencl:0", "opencl:1"]) is not None


def test_guard_fails_for_a_slower_row(monkeypatch, tmp_path, capsys):
    rows = [{"name": name, "seconds": {"numpy": [1.0, 1.0, 1.0], "NumPy": [2.0, 2.0, 2.0]}} for name in ("add", "exp")]
    driver = Device("numpy").info.driver
    file = tmp_path / "committed.json"
    file.write_text(
        json.dumps({"clock": "wall", "processor": "x", "devices": {"numpy": {"driver": driver}}, "rows": rows})
    )
    monkeypatch.setitem(guard.FILES, "cpu", file)
    monkeypatch.setitem(guard.ROWS, "cpu", ("add", "exp"))
    own = {"add": 1.05, "exp": 1.5}

    def compare(workload, competitors, repetitions, clock):
        return {"numpy": summarize([own[workload.name]] * 5), "NumPy": summarize([2.0] * 5)}, {}

    monkeypatch.setattr(guard, "compare", compare)
    assert guard.main(["--devices", "numpy"]) == 1
    shown = capsys.readouterr().out
    assert "another processor, x" in shown
    assert re.search(r"add .* 1.90x, was 2.00x  ok", shown)
    assert re.search(r"exp .* 1.33x, was 2.00x  SLOWER", shown)
    own["exp"] = 1.0
    assert guard.main(["--devices", "numpy"]) == 0
