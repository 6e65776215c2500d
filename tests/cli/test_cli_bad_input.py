"""Bad arguments and damaged files: one clear sentence, exit code 2, and no loss of data."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import TINY, Command


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"  \n\t\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not text: byte 0 (0x89)"),
        (b"text\0more", "is not text: byte 4 is zero"),
        (b"too short", "the text is too short"),
    ],
)
def test_unusable_texts(polyhal: Command, tmp_path: Path, content: bytes | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "file.txt").write_bytes(content)
    outcome = polyhal("train", "file.txt", *TINY, "--device", "numpy")
    _one_sentence(outcome, expected)
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_not_a_text(polyhal: Command, tmp_path: Path) -> None:
    _one_sentence(polyhal("train", tmp_path), "is a folder")


def test_a_text_that_may_not_be_read(polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    _one_sentence(polyhal("train", text), "cannot be read: Permission denied")


def test_a_toml_file_of_deep_nesting(polyhal: Command, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 3000 + "]" * 3000)
    _one_sentence(polyhal("verify", "numpy", "--expectations", path), "nested too deeply")


def test_a_kernel_family_that_a_device_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.cli.workers import search

    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(search, "send", lambda **content: sent.append(content))

    def refuse(*_: Any) -> Any:
        raise ValueError("[tune] no kernel family has 'x' in its name")

    monkeypatch.setattr(search, "search", refuse)
    assert search.main({"device": "numpy", "budget": 1, "only": "x", "done": [], "skip": []}) == 1
    assert sent == [{"event": "failed", "problem": "[tune] no kernel family has 'x' in its name"}]


def test_a_context_longer_than_the_data(polyhal: Command, text: Path) -> None:
    outcome = polyhal("train", text, "--context", 5000, "--device", "numpy")
    _one_sentence(outcome, "a context takes 5000")
    assert "use --context" in outcome.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--width", 10, "--heads", 3], "--width 10 cannot be divided among --heads 3"),
        (["--layers", 0], "--layers is 0; expected 1 or more"),
        (["--batch-size", -4], "--batch-size is -4"),
        (["--steps", -1], "--steps is -1"),
        (["--epochs", 0], "--epochs is 0"),
        (["--epochs", 1, "--steps", 1], "--steps and --epochs are both given"),
        (["--lr", "nan"], "--lr is nan; expected a finite number"),
        (["--lr", 0], "--lr is 0.0; expected more than 0"),
        (["--dropout", 1], "--dropout is 1.0"),
        (["--val-split", 1.5], "--val-split is 1.5"),
        (["--seed", -1], "--seed is -1"),
        (["--tokenizer", "words"], "--tokenizer is words; expected char or bpe"),
        (["--tokenizer", "bpe", "--vocabulary", 5], "--vocabulary is 5"),
        (["--schedule", "square"], "--schedule is square; expected cosine, linear, constant"),
        (["--compress", "int8"], "--compress is int8; expected none, bfloat16, float16"),
        (["--layers", "two"], "Invalid value for '--layers'"),
        (["--stop-after", 0], "--stop-after is 0; expected 1 or more"),
        (["--resume", "--overwrite"], "expected one of them"),
        (["--device", "opencl:99"], "device 'opencl:99' is not available"),
        (["--device", "cuda"], 'did you mean "gpu"?'),
        (["--no-such-option"], "No such option: --no-such-option"),
    ],
)
def test_unusable_options(polyhal: Command, text: Path, tmp_path: Path, options: list[Any], expected: str) -> None:
    device = [] if "--device" in options else ["--device", "numpy"]
    outcome = polyhal("train", text, *options, *device)
    assert outcome.code == 2
    assert expected in outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("widht = 3", "unknown setting 'widht'; did you mean width"),
        ("[train]\nlayer = 3", "unknown setting 'layer'; did you mean layers"),
        ("width = 'wide'", "--width is 'wide'; expected a whole number"),
        ("width = 64.0", "--width is 64.0; expected a whole number"),
        ("width = true", "--width is True"),
        ("train = 3", "expected a table [train]"),
        ("width = ", "is not valid TOML"),
        ("text = 3", "text is 3; expected text"),
        ("width = " + "[" * 5000, "nested too deeply"),
        ("width = 99999999999999999999", "beyond 64 bits"),
        ("width = [{a = 0x" + "f" * 5000 + "}]", "beyond 64 bits"),
        ("width = " + "9" * 5000, "is not valid TOML"),
        (None, "cannot be read"),
    ],
)
def test_unusable_configuration_files(
    polyhal: Command, text: Path, tmp_path: Path, content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "c.toml").write_text(content)
    arguments = [] if content and content.startswith("text") else [text]
    _one_sentence(polyhal("train", *arguments, "--device", "numpy", "--config", "c.toml"), expected)


def test_debugging_shows_the_traceback(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_DEBUG", "1")
    with pytest.raises(Exception, match="does not exist"):
        polyhal("train", "missing.txt")


def test_a_save_dir_that_is_a_file(polyhal: Command, text: Path) -> None:
    _one_sentence(polyhal("train", text, *TINY, "--steps", 1, "--device", "numpy", "--save-dir", text), "is a file")


def test_a_full_disk_leaves_the_checkpoint_from_before(
    polyhal: Command, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["--save-dir", "run", "--device", "numpy"]
    polyhal("train", text, *TINY, *run, "--steps", 10, "--stop-after", 5)
    before = _content(tmp_path / "run" / "last")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        outcome = polyhal("train", "--resume", *run)
    _one_sentence(outcome, "cannot be written: No space left on device")
    assert "continue with --resume" in outcome.err
    assert _content(tmp_path / "run" / "last") == before
    assert polyhal("train", "--resume", *run).code == 0


def test_a_full_disk_is_noticed_before_the_first_step(
    polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    outcome = polyhal("train", text, *TINY, "--steps", 10, "--device", "numpy", "--save-dir", "run")
    _one_sentence(outcome, "No space left on device")
    assert "step 1/" not in outcome.out


def _spoil(folder: Path, how: str) -> None:
    tensors = next(folder.glob("tensors-*"))
    state = folder / "state.json"
    if how == "truncated":
        os.truncate(tensors, tensors.stat().st_size // 2)
    elif how == "altered":
        data = bytearray(tensors.read_bytes())
        header = 8 + int.from_bytes(data[:8], "little")
        for position in range(header, len(data), 64):  # some in every tensor
            data[position] ^= 1
        tensors.write_bytes(bytes(data))
    elif how == "lost":
        tensors.unlink()
    elif how == "edited":
        state.write_text(state.read_text().replace('"layers": 2', '"layers": 3'))
    elif how == "schema":
        content = json.loads(state.read_text())
        content["schema"] = 99
        state.write_text(json.dumps(content))
    elif how == "half":
        state.write_text(state.read_text()[:100])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("truncated", "damaged"),
        ("altered", "altered"),
        ("lost", "lacks tensors-"),
        ("edited", "was altered"),
        ("schema", "has schema 99"),
        ("half", "is damaged"),
    ],
)
def test_spoilt_checkpoints_are_refused(polyhal: Command, trained: Path, how: str, expected: str) -> None:
    _spoil(trained / "last", how)
    resumed = polyhal("train", "--resume", "--save-dir", trained, "--steps", 20, "--device", "numpy")
    generated = polyhal("generate", trained / "last", "--device", "numpy")
    for outcome in (resumed, generated):
        _one_sentence(outcome, expected)
    assert polyhal("generate", trained / "best", "--device", "numpy", "--max-tokens", 3).code == 0


def test_a_checkpoint_of_something_else(polyhal: Command, tmp_path: Path) -> None:
    from polyhal.serialize import save

    save({"weights": [1.0, 2.0]}, tmp_path / "other")
    _one_sentence(polyhal("generate", "other", "--device", "numpy"), "is not a language model")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["nowhere"], "checkpoint nowhere does not exist"),
        (["."], "contains neither a checkpoint nor a run"),
        ([".", "--temperature", -1], "temperature is -1"),
        ([".", "--top-k", 0], "top_k is 0"),
        ([".", "--top-p", 2], "top_p is 2"),
        ([".", "--max-tokens", -1], "--max-tokens is -1; expected 0 or more"),
        ([".", "--seed", -1], "--seed is -1; expected 0 to"),
        ([".", "--prompt", ""], "the prompt is empty"),
        ([], "Missing argument"),
    ],
)
def test_unusable_requests_for_text(polyhal: Command, options: list[Any], expected: str) -> None:
    _one_sentence(polyhal("generate", *options), expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain", "layer_nrom"], "did you mean layer_norm"),
        (["explain", "add", "--shape", "3,x"], "'3,x' is not a shape"),
        (["explain", "add", "--dtype", "float33"], "float33"),
        (["explain", "matmul", "--shape", "2,3", "--shape", "4,5", "--device", "numpy"], "matmul"),
        (["trian"], "No such command"),
    ],
)
def test_other_commands(polyhal: Command, arguments: list[str], expected: str) -> None:
    _one_sentence(polyhal(*arguments), expected)


def _content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explian"], "No such command 'explian'; did you mean 'explain', 'plan'; see `"),
        (["explain"], "Missing argument"),
        (["explain", "sofmax"], "unknown name 'sofmax'; did you mean softmax"),
        (["explain", "softmax", "--shape", "3,x"], "'3,x' is not a shape; expected lengths such as 3,4"),
        (["explain", "softmax", "--dtype", "flot32"], "'flot32' names no dtype of Polyhal; expected one of bool_"),
        (["explain", "matmul", "--device", "numpy", "--shape", "3,4", "--shape", "5,6"], "inner lengths differ"),
        (["kernels", "lst"], "No such command 'lst'"),
        (["kernels", "list", "--device", "numpy"], "this backend has no kernel files"),
        (["prebuild", "--for", "nothing"], "unknown workload 'nothing'"),
        (["tune", "--budget", "3q"], "'3q' is not a duration; expected 60s or 5m, for example"),
        (["verify", "numpy", "--only", "nothing"], "no check matches 'nothing'"),
        (["verify", "--small", "--full"], "exclude each other"),
        (["generate", "nowhere"], "checkpoint nowhere does not exist"),
        (["finetune", "m", "d", "--merge"], "'--merge' requires an argument; see `polyhal finetune --help`"),
        (["kernels", "list", "--device"], "'--device' requires an argument; see `polyhal kernels list --help`"),
        (["chat", "m", "--draft", "d", "--lookup"], "--draft and --lookup are two sources of proposed tokens"),
    ],
)
def test_bad_arguments_of_every_command(polyhal: Command, arguments: list[str], expected: str) -> None:
    _one_sentence(polyhal(*arguments), expected)


def _one_sentence(outcome: Any, expected: str) -> None:
    assert outcome.code == 2, outcome
    assert expected in outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.out
