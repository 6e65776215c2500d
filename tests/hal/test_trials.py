"""Trials of plug-ins in a subprocess: programs continue without plug-ins that crash, with a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broken_plugins import BEGINNING, SEGFAULT, Broken, hook_text
from installed_plugins import install, run

_LIMIT = "5"
DEFAULT = """
import json, time, warnings, polyhal
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    device = polyhal.Device.default()
    polyhal.Device.default()
print(json.dumps({"device": device.name, "warnings": [str(w.message) for w in caught]}))
"""
FAILING_OPS = """
class Hostile(Exception):
    def __str__(self): raise RuntimeError("no message")

class Broken(Backend):
    def binary(self, op, a, b, out):
        raise Hostile()
    def copy_from_device(self, src, offset, dst):
        raise ValueError("lost packet")
Backend = Broken
"""


def answer(code: str, folder: Path, **environment: str) -> dict[str, Any]:
    done = run(code, folder, _LIMIT, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def plugin(folder: Path, name: str, body: str) -> None:
    install(folder, Broken(name, f"{BEGINNING}\n{body}\n{hook_text('[spec()]')}", "", "", ""))


def test_the_default_device_comes_with_one_warning_that_names_the_package(tmp_path: Path) -> None:
    plugin(tmp_path, "fast-card", f"def probe():\n    {SEGFAULT}")
    found = answer(DEFAULT, tmp_path)
    assert found["device"] == "numpy"
    (warning,) = found["warnings"]
    assert "numpy was chosen among the working devices; others fail: backend fast-card: " in warning
    assert "probing for devices ended the process by SIGSEGV (package fast-card 1.0)" in warning
    assert "POLYHAL_DISABLE=fast-card excludes it" in warning


def test_opening_a_device_by_name_is_not_affected_by_a_plug_in_that_crashes(tmp_path: Path) -> None:
    plugin(tmp_path, "fast-card", f"def probe():\n    {SEGFAULT}")
    assert answer(DEFAULT, tmp_path, POLYHAL_DEVICE="numpy") == {"device": "numpy", "warnings": []}


def test_a_plug_in_is_tried_once_and_again_after_a_change(tmp_path: Path) -> None:
    note = f"open({str(tmp_path / 'probed')!r}, 'a').write('x')"
    plugin(tmp_path, "counted", f"def probe():\n    {note}\n    return []")
    count = lambda: len((tmp_path / "probed").read_text())  # noqa: E731
    answer(DEFAULT, tmp_path)
    first = count()
    assert first == 2  # in its trial, and in the program
    answer(DEFAULT, tmp_path)
    assert count() == first + 1  # in the program only
    (tmp_path / "another_package").mkdir()  # like an installation
    answer(DEFAULT, tmp_path)
    assert count() == first + 3


def test_a_failed_trial_is_valid_until_a_variable_that_affects_it_changes(tmp_path: Path) -> None:
    body = f"def probe():\n    import os\n    if 'CARD_SAFE' not in os.environ: {SEGFAULT}\n    return [INFO]"
    text = f"{BEGINNING}\n{body}\n{hook_text('''[spec(environment=('CARD_',))]''')}"
    install(tmp_path, Broken("careful", text, "", "", ""))
    assert answer(DEFAULT, tmp_path)["device"] == "numpy"
    assert answer(DEFAULT, tmp_path)["warnings"]  # from the cache file
    with_fix = answer(DEFAULT, tmp_path, CARD_SAFE="1", POLYHAL_MEASURE_TIMEOUT="0")
    assert with_fix == {"device": "careful", "warnings": []}


def test_without_trials_plug_ins_are_probed_at_once(tmp_path: Path) -> None:
    plugin(tmp_path, "leaves", "def probe():\n    import os; os._exit(7)")
    assert run(DEFAULT, tmp_path, _LIMIT, POLYHAL_TRIALS="0").returncode == 7


def test_control_characters_of_a_driver_do_not_reach_the_terminal(tmp_path: Path) -> None:
    body = r"INFO = replace(INFO, name='card \x1b[2J\x07\nof one line', driver='\x9b31m', vendor='\u202e')"
    plugin(tmp_path, "loud", body)
    commands = "from polyhal.cli.app import run; run(['devices', '--json']); run(['devices']); run(['doctor'])"
    done = run(commands, tmp_path, _LIMIT, POLYHAL_MEASURE_TIMEOUT="0", COLUMNS="200")
    assert (
        "card \N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}of one line" in done.stdout
    )
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout + done.stderr)


def test_exceptions_of_a_backend_name_op_device_and_package(tmp_path: Path) -> None:
    plugin(tmp_path, "faulty", FAILING_OPS)
    code = """
import json, polyhal
found = {}
x = polyhal.ones(3, device="faulty")
for name, use in {"add": lambda: x + 1, "read": lambda: x.numpy()}.items():
    try:
        use()
    except Exception as error:
        found[name] = [type(error).__name__, *error.__notes__]
print(json.dumps(found))
"""
    found = answer(code, tmp_path)
    where = "raised by the backend faulty of the package faulty 1.0 in [{}] on faulty (device of faulty)"
    assert found == {
        "add": ["Hostile", where.format("add")],
        "read": ["ValueError", where.format("copy from device")],
    }


def test_reports_continue_after_a_device_with_false_facts_and_one_that_raises(tmp_path: Path) -> None:
    plugin(tmp_path, "faulty", FAILING_OPS)
    plugin(
        tmp_path,
        "liar",
        """
class Liar(Backend):
    def __init__(self):
        super().__init__()
        self.capabilities = replace(self.capabilities, features={"units": Strange()})

class Strange:
    def __str__(self): raise OSError("no text")
    __repr__ = __format__ = __deepcopy__ = lambda self, *a: self.__str__()
Backend = Liar
""",
    )
    for command in ("devices", "doctor"):
        done = run(
            f"from polyhal.cli.app import run; raise SystemExit(run([{command!r}]))",
            tmp_path,
            _LIMIT,
            POLYHAL_DEVICE="numpy",
        )
        assert "Traceback" not in done.stderr
        assert "device of faulty" in done.stdout
        assert "device of liar" in done.stdout
    assert "Hostile (a message that raises RuntimeError)" in done.stdout


def test_a_package_with_ops_that_crashes_when_it_is_imported_is_named(tmp_path: Path) -> None:
    meta = tmp_path / "crashing_ops-2.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing-ops\nVersion: 2.0\n")
    (meta / "entry_points.txt").write_text("[polyhal.ops]\ncrashing = crashing_ops\n")
    (tmp_path / "crashing_ops.py").write_text(SEGFAULT)
    done = run("from polyhal.cli.app import run; raise SystemExit(run(['doctor', '--no-test']))", tmp_path, _LIMIT)
    assert done.returncode == 0, done.stderr
    expected = "entry point crashing = crashing_ops: loading it ended the process by SIGSEGV (package crashing-ops 2.0)"
    assert expected in done.stdout
