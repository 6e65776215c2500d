"""`polyhal plan`: tables, JSON and the plot; errors for bad input list the known names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Command

pytestmark = pytest.mark.slow

_SMALL = {"n_layer": 4, "n_embd": 64, "n_head": 4, "vocab_size": 128, "block_size": 32}
_QUICK = ("--model", "small.json", "--batch", "2/device", "--strategy", "shard=none", "--devices", "2xh200")


@pytest.fixture(autouse=True)
def small_model(polyhal: Command, tmp_path: Path) -> None:
    """Write the configuration of a GPT that is captured quickly."""
    (tmp_path / "small.json").write_text(json.dumps(_SMALL))


def test_the_plan_is_printed_and_plotted(polyhal: Command, tmp_path: Path) -> None:
    outcome = polyhal("plan", *_QUICK, "--plot", "curve.png")
    assert outcome.code == 0, outcome.err
    first, second, *rest = outcome.out.splitlines()
    assert first == "small, 0.2 million parameters, bfloat16"
    assert second.startswith("4 samples of 32 tokens in a step, on 2 h200 devices, NVLink 4 (390 GB/s")
    assert any(line.endswith("  data=2,micro=2") for line in rest)
    assert any(line.startswith("Memory of a device: ") for line in rest)
    assert any("####" in line and "tokens/s" in line for line in rest)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_json_contains_the_plan(polyhal: Command) -> None:
    outcome = polyhal("plan", *_QUICK, "--json", "--no-curve", "--dtype", "float32", "--link", "50@5")
    assert outcome.code == 0, outcome.err
    plan = json.loads(outcome.out)
    assert (plan["model"], plan["devices"], plan["batch"], plan["dtype"]) == ("small", 2, 4, "float32")
    assert plan["links"]["inside"]["bytes_per_second"] == 50e9
    best = plan["strategies"][0]
    parts = ("compute_seconds", "tensor_seconds", "data_seconds", "bubble_seconds")
    assert sum(best[p] for p in parts) == pytest.approx(best["step_seconds"])
    memory = best["memory_bytes"]
    assert memory.pop("total") == pytest.approx(sum(memory.values()), abs=8)


def test_unequal_devices_process_unequal_numbers_of_samples(polyhal: Command) -> None:
    options = ("--model", "small.json", "--devices", "1xh200,2xrx480", "--link", "ideal", "--strategy", "shard=none")
    outcome = polyhal("plan", *options, "--batch", "3")
    assert outcome.code == 0, outcome.err
    head, rest = outcome.out.split("\n\n", 1)
    assert head.endswith("on 1 h200 and 2 rx480")
    assert "times as fast as the fastest kind by itself" in rest
    plan = json.loads(polyhal("plan", *options, "--batch", "4096", "--json").out)
    fast, slow = plan["kinds"]
    assert fast["samples_per_device"] > 2 * slow["samples_per_device"] > 0
    assert fast["samples_per_device"] + 2 * slow["samples_per_device"] == plan["batch"]
    assert plan["step_seconds"] == max(fast["step_seconds"], slow["step_seconds"]) < plan["alone_seconds"]
    assert polyhal("plan", *options, "--strategy", "tensor=2").err.count("expected tensor=1 and pipeline=1") == 1


def test_a_device_of_this_machine_is_measured(polyhal: Command) -> None:
    outcome = polyhal("plan", *_QUICK, "--devices", "2xnumpy", "--json", "--no-curve", "--link", "10@10")
    assert outcome.code == 0, outcome.err
    plan = json.loads(outcome.out)
    assert (plan["device"], plan["dtype"]) == ("numpy", "float32")
    assert plan["strategies"][0]["compute_seconds"] > 0
    assert plan["strategies"][0]["utilization"] is None


def test_a_missing_matplotlib_costs_only_the_curve(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    outcome = polyhal("plan", *_QUICK, "--no-curve", "--plot", "curve.png")
    assert outcome.code == 0, outcome.err
    assert 'pip install "polyhal[plot]"' in outcome.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model", "gpt9"], "no model is called 'gpt9'; expected gpt2-124m, gpt2-355m"),
        (["--model", "none.json"], "No such file or directory: none.json"),
        (["--model", "bad.json"], "bad.json is not JSON"),
        (["--model", "odd.json"], "odd.json has model_type None; expected the config.json of a GPT-2, Llama or BERT"),
        (["--model", "wrong.json"], "[GPTConfig] n_layer is 'four'"),
        (["--model", "list.json"], "list.json has model_type None"),
        (["--context", "2000"], "a context of 2000; expected 1 to 32 tokens"),
        (["--devices", "8xb900"], "unknown card 'b900'; expected a100, a770, cpu_2core"),
        (["--devices", "8"], "invalid devices '8'; expected NUMBERxDEVICE"),
        (["--devices", "0xh200"], "invalid devices '0xh200'"),
        (["--devices", "12xh200"], "12 devices in nodes of 8; expected whole nodes, as in 2x8xh200"),
        (
            ["--link", "string"],
            "invalid link 'string'; expected GB/s with microseconds, such as 50@5, or one of nvlink4",
        ),
        (["--link", "nvlink4,0xpcie4"], "'0xpcie4' has no ports"),
        (["--link", "a,b,c"], "3 links in 'a,b,c'"),
        (["--batch", "many"], "invalid batch 'many'; expected a number such as 512, or 16/device"),
        (["--dtype", "int8"], "training in 'int8'; expected float32, bfloat16, float16"),
        (["--strategy", "magic"], "invalid constraint 'magic'; expected data=NUMBER"),
        (
            ["--strategy", "tensor=3"],
            "no strategy for 2 devices and a batch of 4 satisfies the constraints; expected data",
        ),
        (["--strategy", "pipeline=2,micro=3"], "no strategy for 2 devices"),
        (["--top", "0"], "--top"),
    ],
)
def test_errors_for_bad_input_list_known_names(
    polyhal: Command, tmp_path: Path, options: list[str], expected: str
) -> None:
    for name, text in {
        "bad": "{",
        "odd": "{}",
        "list": "[]",
        "wrong": json.dumps({**_SMALL, "n_layer": "four"}),
    }.items():
        (tmp_path / f"{name}.json").write_text(text)
    outcome = polyhal("plan", *_QUICK, *options)
    assert outcome.code == 2, outcome
    assert expected in outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
