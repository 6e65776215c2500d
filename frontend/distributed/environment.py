"""Environment variables that launchers of jobs (MPI's mpiexec, Slurm, an MPI operator) set for each process."""

from __future__ import annotations

import os
from typing import NamedTuple


class Place(NamedTuple):
    """Rank and size of a process in its job, and on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


_MPI = (
    # MPICH and its derivatives (Intel MPI, MVAPICH), also under Slurm's `--mpi=pmi2`
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    # Slurm's `--mpi=pmix`, which provides the size only in Slurm's own variables
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
_LOCAL = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
)


def mpi_place() -> Place | None:
    """Return the rank that MPI's launcher assigned to this process; None without a launcher."""
    found = _first(_MPI)
    if found is None:
        return None
    local_rank, local_size = _first(_LOCAL) or (0, 1)
    return Place(*found, local_rank, local_size)


def started_by_mpi() -> bool:
    """Return whether an MPI launcher started this process, as one of several or as the only one of its job."""
    return mpi_place() is not None or slurm_tasks() > 1


def slurm_tasks() -> int:
    """Return the number of tasks of this `srun`; 1 outside of Slurm."""
    return _number("SLURM_STEP_NUM_TASKS") or 1


def spans_machines() -> bool:
    """Return whether a batch system has allocated several machines to this job."""
    return (_number("SLURM_JOB_NUM_NODES") or 1) > 1 or any(
        name in os.environ for name in ("PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE", "HYDRA_HOST_FILE")
    )


def _first(names: tuple[tuple[str, str], ...]) -> tuple[int, int] | None:
    for rank, size in names:
        place, total = _number(rank), _number(size)
        if place is not None and total is not None:
            return place, total
    return None


def _number(name: str) -> int | None:
    """Return the integer prefix of a variable: Slurm writes `4(x2)` for four tasks on each of two nodes."""
    digits = os.environ.get(name, "").partition("(")[0].partition(",")[0]
    return int(digits) if digits.isdigit() else None
