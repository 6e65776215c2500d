"""MPI launchers are recognized by the environment variables that they set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal.distributed import mpiexec, threads
from polyhal.distributed.environment import Place, mpi_place, spans_machines, started_by_mpi
from polyhal.hal.core.settings.processes import signal_text


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, None),
        # mpiexec of MPICH
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, Place(3, 4, 1, 2)),
        # srun --mpi=pmi2, on two nodes of four tasks each
        (
            {"PMI_RANK": "5", "PMI_SIZE": "8", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2)"},
            Place(5, 8, 1, 4),
        ),
        # srun --mpi=pmix
        ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, Place(1, 2, 0, 1)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "3",
                "OMPI_COMM_WORLD_LOCAL_RANK": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
            },
            Place(2, 3, 2, 3),
        ),
        # a batch script that is not a step of its job
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None),
        ({"PMI_RANK": "", "PMI_SIZE": "many"}, None),
    ],
)
def test_ranks_in_a_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: Place | None) -> None:
    for name in [n for n in os.environ if n.startswith(("PMI", "MPI_", "OMPI_", "SLURM_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mpi_place() == place
    assert started_by_mpi() is (place is not None)


def test_tasks_that_mpi_does_not_connect_are_noticed() -> None:
    """Run in a separate process, because MPI can only be finalized once per process."""
    done = subprocess.run(
        [sys.executable, "-c", "import polyhal; polyhal.distributed.init()"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SLURM_STEP_NUM_TASKS": "4"},
    )
    assert done.returncode == 1
    assert (
        "4 processes were started, but MPI in this process reports 1; expected an MPI library that belongs"
        in done.stderr
    )
    assert "srun --mpi=pmi2" in done.stderr


def test_jobs_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    assert not spans_machines()
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert spans_machines()


def test_every_rank_has_its_part_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert threads.variables(1)["OMP_NUM_THREADS"] == "8"
    assert threads.variables(3)["OMP_NUM_THREADS"] == "2"
    assert threads.variables(16)["OMP_NUM_THREADS"] == "1"


def test_hosts_run_blocks_of_ranks() -> None:
    command = mpiexec.command(5, ["a", "b"], ["program"])
    assert command[command.index("-hosts") + 1] == "a,b"
    assert command[command.index("-ppn") + 1] == "3"
    assert command[-3:] == ["-n", "5", "program"]


def test_a_signal_is_explained() -> None:
    assert signal_text(9).startswith("signal 9 (SIGKILL: by a person, ")
    assert signal_text(200) == "signal 200"


def test_the_library_of_the_starter_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have another MPI, which mpi4py would find first."""
    for name in ("bin/mpiexec", "lib/libmpi.so.12"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setattr(mpiexec, "find", lambda: tmp_path / "bin" / "mpiexec")
    assert mpiexec.variables() == {"MPI4PY_LIBMPI": str(tmp_path / "lib" / "libmpi.so.12")}
    (tmp_path / "lib" / "libmpi.so.12").unlink()
    assert mpiexec.variables() == {}, "where the library is elsewhere, mpi4py looks for it"
