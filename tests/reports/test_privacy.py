"""Data that a report never contains, whatever a driver reports."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.reports.privacy import Scrubber

ENVIRONMENT = {"USER": "grace", "HOSTNAME": "mark-1.navy.mil", "HOME": "/home/grace", "HF_TOKEN": "hf_abcdefgh"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error in /home/grace/.cache/k.cl:3: bad", "error in <path>:3: bad"),
        ("open ~/.cache/pocl/x failed", "open <path> failed"),
        (r"C:\Users\Grace\a.dll is missing", "<path> is missing"),
        (r"\\server\share\x", "<path>"),
        ("uuid GPU-5f1c3e9a-77aa-4b8d-9c1e-0123456789ab", "uuid <id>"),
        ("at 0000:65:00.0 and 65:00.0", "at <id> and <id>"),
        ("Serial Number: A12-9 ok", "Serial Number: <id> ok"),
        ("by Grace on MARK-1, or mark-1.navy.mil", "by <name> on <name>, or <name>"),
        ("key=hf_abcdefgh;", "key=<secret>;"),
        ("ask grace@navy.mil", "ask <address>"),
        ("two\nlines\x00", "two lines?"),
    ],
)
def test_what_is_taken_out(text: str, expected: str) -> None:
    assert Scrubber(ENVIRONMENT).text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA GeForce RTX 4090",
        "550.54.15",
        "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512",
        "Vulkan Mesa 22.3.6 (LLVM 15.0.6)",
        "forward/softmax/float32",
        "Intel(R) OpenCL 2026.22.10.0.01_160000",
        "32.0.15.6094",
        "23.2.1-1ubuntu3.1~22.04.2 (git-a1b2c3d4e5)",
        "got 0.00322532514 at (0, 1), expected -1.2345678901234567e-05",
    ],
)
def test_what_drivers_say_about_themselves_stays(text: str) -> None:
    assert Scrubber(ENVIRONMENT).text(text) == text


NAMES = st.text(string.ascii_lowercase + string.digits, min_size=2, max_size=12)


SEPARATORS = st.sampled_from([" on ", " user=", "/mnt/", "'", "@", "_", ": ", "(", "\\"])


@settings(max_examples=50, deadline=None)
@given(NAMES, NAMES, st.lists(SEPARATORS, min_size=1, max_size=4))
def test_names_of_users_and_hosts_never_remain(user: str, host: str, separators: list[str]) -> None:
    """Any name after any separator goes; the first letters keep it from being part of a replacement."""
    user, host = f"u0{user}", f"h0{host}"
    scrub = Scrubber({"USER": user, "HOSTNAME": host})
    for name in (user, host):
        assert name not in scrub.text("".join(separator + name for separator in separators))


def test_features_that_identify_are_dropped() -> None:
    features = {
        "fp16": "yes",
        "pci_bus_id": "1",
        "deviceUUID": "2",
        "board serial": "3",
        "cl_path": "4",
        "note": "grace",
    }
    assert Scrubber(ENVIRONMENT).features(features) == {"fp16": "yes", "note": "<name>"}


def test_long_logs_are_cut_after_names_are_taken_out() -> None:
    text = Scrubber(ENVIRONMENT).text("x" * 398 + " grace")
    assert text == "x" * 398 + " <..."
