"""Completions, by the protocol of a shell: the script sets variables, and the command prints candidates."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polyhal.cli.completion import described_names, device_names, public_names, simulated_names


def completed(words: str, current: int) -> list[str]:
    """Return the candidates for a word of a command line, as bash asks for them."""
    variables = {"_POLYHAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(current)}
    code = "from polyhal.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'polyhal'; {code}"],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "current", "expected"),
    [
        ("polyhal expl", 1, {"explain"}),
        ("polyhal bench --device num", 3, {"numpy"}),
        ("polyhal plan --model gpt2-1", 3, {"gpt2-124m", "gpt2-1.5b"}),
    ],
)
def test_a_shell_receives_candidates(words: str, current: int, expected: set[str]) -> None:
    assert set(completed(words, current)) == expected


def test_names_of_devices_cards_and_ops() -> None:
    assert "sim:h200" in device_names("sim:h")
    assert device_names("numpy,sim:h200") == ["numpy,sim:h200"]
    assert "described:rx6800" in device_names("described:rx")
    assert all(name.startswith("sim") for name in simulated_names(""))
    assert "rx6800" in described_names("rx")
    assert {"softmax", "softplus"} <= set(public_names("soft"))
    assert "nn.LSTM" in public_names("nn.LS")
    assert public_names("no_such_module.x") == []
