"""`polyhal finetune`: a run, its interruption and resuming, and `generate --adapter`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

from tests.llm.small_models import with_bytes

from .conftest import Command

OPTIONS = ["--lora", "r=2,alpha=4", "--epochs", 4, "--lr", "0.01", "--device", "numpy"]
WEIGHTS = Path("last") / "adapter" / "adapter_model.safetensors"


def data(path: Path) -> Path:
    """Write conversations that fit into a row together."""
    talks = [[{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": f"{i + 1}"}] for i in range(9)]
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    return path


def test_an_interrupted_run_is_resumed_to_the_same_adapters(polyhal: Command, tmp_path: Path) -> None:
    with_bytes(tmp_path / "m.gguf")
    data(tmp_path / "d.jsonl")
    whole = polyhal("finetune", "m.gguf", "d.jsonl", *OPTIONS, "--save-dir", "whole")
    assert whole.code == 0, whole.err
    part = polyhal("finetune", "m.gguf", "d.jsonl", *OPTIONS, "--save-dir", "part", "--stop-after", 1)
    assert part.code == 0, part.err
    assert "polyhal finetune --resume --save-dir part" in part.out
    assert (tmp_path / "part" / WEIGHTS).read_bytes() != (tmp_path / "whole" / WEIGHTS).read_bytes()
    resumed = polyhal("finetune", "--resume", "--save-dir", "part", "--device", "numpy")
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "part" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    losses = [json.loads(line)["loss"] for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    again = polyhal("finetune", "m.gguf", "d.jsonl", *OPTIONS, "--save-dir", "whole")
    assert (again.code, "already contains a run" in again.err) == (2, True)
    again = polyhal("finetune", "m.gguf", "d.jsonl", *OPTIONS, "--save-dir", "whole", "--resume")
    assert again.code == 0, again.err
    again = polyhal("finetune", "--resume", "--save-dir", "whole", "--clip", 3)
    assert (again.code, "--clip 3.0 contradicts the run in whole, which has 1.0" in again.err) == (2, True)
    written = polyhal("generate", "m.gguf", "--adapter", "whole/last/adapter", "--max-tokens", 3, "--device", "numpy")
    assert written.code == 0, written.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["m.gguf"], "the data is missing"),
        (["d.jsonl", "m.gguf"], "d.jsonl is not a GGUF file"),
        (["m.gguf", "d.jsonl", "--lora", "q=3"], "--lora has 'q=3'"),
        (["m.gguf", "d.jsonl", "--lora", "r=0"], "ranks are"),
        (["m.gguf", "d.jsonl", "--targets", "nothing"], "match no linear layer"),
        (["m.gguf", "bad.jsonl"], "bad.jsonl:1 has text 3"),
        (["m.gguf", "d.jsonl", "--context", 1], "--context is 1"),
        (["m.gguf", "d.jsonl", "--context", 4], "among its first 4; the longest has"),
        (["m.gguf", "empty.jsonl"], "has no records"),
        (["m.gguf", "d.jsonl", "--lr", "-1"], "lr is -1"),
        (["m.gguf", "d.jsonl", "--context", 4096], "context 4096"),
        (["none.gguf", "d.jsonl"], "does not exist"),
        (["--resume", "--save-dir", "none"], "no run to resume"),
    ],
)
def test_bad_input_is_one_sentence(polyhal: Command, tmp_path: Path, arguments: list[object], problem: str) -> None:
    with_bytes(tmp_path / "m.gguf")
    data(tmp_path / "d.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n')
    done = polyhal("finetune", *arguments, "--device", "numpy")
    assert done.code == 2
    assert problem in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


def test_an_adapter_is_merged_after_training_and_changes_the_perplexity(polyhal: Command, tmp_path: Path) -> None:
    with_bytes(tmp_path / "m.gguf")
    data(tmp_path / "d.jsonl")
    (tmp_path / "t.txt").write_text("ab" * 40)
    options = [*OPTIONS, "--save-dir", "run", "--merge", "merged"]
    done = polyhal("finetune", "m.gguf", "d.jsonl", *options)
    assert done.code == 0, done.err
    assert "merged: 2,696 weights" in done.out
    again = polyhal("finetune", "--resume", "--save-dir", "run", "--merge", "merged", "--device", "numpy")
    assert (again.code, "a new or an empty folder" in again.err) == (2, True)
    by_hand = polyhal("merge", "m.gguf", "run/last/adapter", "other", "--dtype", "float32", "--json")
    assert by_hand.code == 0, by_hand.err
    assert json.loads(by_hand.out)["parameters"] == 2696
    found = []
    for arguments in (["m.gguf"], ["m.gguf", "--adapter", "run/last/adapter"], ["merged"], ["other"]):
        scored = polyhal(
            "perplexity", arguments[0], "t.txt", *arguments[1:], "--context", 16, "--json", "--device", "numpy"
        )
        assert scored.code == 0, scored.err
        found.append(json.loads(scored.out))
    assert {row["scored"] for row in found} == {found[0]["tokens"] - 1}
    losses = [row["loss"] for row in found]
    assert abs(losses[0] - losses[1]) > 1e-3
    assert losses[2] == pytest.approx(losses[1], abs=1e-4)
    assert losses[3] == pytest.approx(losses[1], abs=1e-4)
    shown = polyhal("perplexity", "merged", "t.txt", "--device", "numpy")
    assert "perplexity" in shown.out
    (tmp_path / "empty.txt").write_text("")
    for arguments, problem in (
        (["empty.txt"], "1 token; expected at least 2"),
        (["none.txt"], "none.txt"),
        (["t.txt", "--context", 1], "context is 1; expected 2 to 64"),
        (["t.txt", "--stride", 65], "stride is 65; expected 1 to 64"),
    ):
        wrong = polyhal("perplexity", "m.gguf", *arguments, "--device", "numpy")
        assert (wrong.code, problem in wrong.err) == (2, True), wrong.err
