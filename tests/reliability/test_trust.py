"""Caches that other users can write to: their files are neither loaded nor executed, and pipes in them do not block."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl import icd
from polyhal.hal.core.settings import env, json_store, trust
from polyhal.hal.errors import PolyhalError

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
_NOBODY = 65534
root_only = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def vendors(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the library folder that `prepare` writes."""
    library = tmp_path / "libintelocl.so"
    library.touch()
    monkeypatch.setattr(icd, "packaged_library", lambda: library)
    monkeypatch.setattr(icd, "_SYSTEM_FOLDER", tmp_path / "none")
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    return Path(icd.prepare().folder)


def test_a_folder_of_ours_loses_the_permissions_of_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert trust.distrust(tmp_path) == ""
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@root_only
def test_a_cache_of_another_user_is_not_used_and_a_warning_says_so(cache: Path) -> None:
    cache.mkdir()
    os.chown(cache, _NOBODY, _NOBODY)
    with pytest.warns(UserWarning, match=rf"{cache} belongs to user {_NOBODY}.*POLYHAL_CACHE_DIR"):
        used = env.cache_dir()
    assert used != cache
    assert stat.S_IMODE(used.stat().st_mode) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert env.cache_dir() == used  # once per process


@root_only
def test_programs_in_a_folder_of_another_user_are_not_loaded(tmp_path: Path) -> None:
    DiskCache(tmp_path / "programs").store("a", b"program")
    assert DiskCache(tmp_path / "programs").load("a") == b"program"
    os.chown(tmp_path / "programs", _NOBODY, _NOBODY)
    cache = DiskCache(tmp_path / "programs")
    assert cache.load("a") is None
    assert "belongs to user" in cache.failure
    cache.store("b", b"other")
    assert not (tmp_path / "programs" / "b.bin").exists()


def test_programs_are_kept_where_only_we_can_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        DiskCache(tmp_path / "programs").store("a", b"program")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "programs").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_a_pipe_or_endless_device_in_a_cache_is_a_miss(cache: Path, kind: str) -> None:
    programs = DiskCache(cache / "programs")
    programs.store("a", b"program")
    entry, table = cache / "programs" / "a.bin", cache / "table.json"
    entry.unlink()
    for path in (entry, table):
        if kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    assert programs.load("a") is None
    with pytest.raises((OSError, PolyhalError), match="regular file"):
        json_store.read(table, 1)


def test_foreign_files_in_the_vendor_folder_are_removed(vendors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = (f.name for f in vendors.iterdir())
    before = (vendors / name).read_text()
    (vendors / "evil.icd").write_text("/tmp/evil.so")
    (vendors / name).unlink()
    (vendors / name).symlink_to("/etc/hostname")
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    assert icd.prepare().folder == str(vendors)
    assert {f.name: f.read_text() for f in vendors.iterdir()} == {name: before}
    assert not (vendors / name).is_symlink()


def test_an_inherited_vendor_folder_with_foreign_files_is_written_again(vendors: Path) -> None:
    (vendors / "evil.icd").write_text("/tmp/evil.so")
    assert os.environ["OCL_ICD_VENDORS"] == str(vendors)
    assert icd.prepare().folder == str(vendors)
    assert "evil.icd" not in {f.name for f in vendors.iterdir()}


@root_only
def test_a_vendor_folder_of_another_user_or_a_link_is_not_used(
    vendors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(icd.tempfile, "gettempdir", lambda: str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").touch()
    (tmp_path / "shared" / f"polyhal-{os.getuid()}-{vendors.name}").symlink_to(precious)
    os.chown(vendors, _NOBODY, _NOBODY)
    for inherited in ("", str(vendors)):
        monkeypatch.setenv("OCL_ICD_VENDORS", inherited)
        folder = Path(icd.prepare().folder)
        assert folder != vendors
        assert folder.stat().st_uid == os.getuid()
        assert not folder.is_symlink()
    assert (precious / "thesis").exists()


def test_no_temporary_folder_is_left_to_the_garbage_collector_at_exit(tmp_path: Path) -> None:
    code = (
        "from polyhal.hal.core.kernels.background_build import background_builder\n"
        "builder = background_builder('numpy')\n"
        "builder.wait_for_turn('kernel', 'digest')\n"
        "assert builder._folder is not None\n"
        "print(builder._folder)\n"
    )
    environment = os.environ | {"POLYHAL_CACHE_DIR": str(tmp_path), "POLYHAL_BUILD_AHEAD": "1", "POLYHAL_TRIALS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()
