"""Traffic of collectives: elements between each pair of participants, and elements that count for the bus bandwidth."""

from __future__ import annotations

from polyhal.hal.collectives.collective import Collective, Kind, divided


def traffic(collective: Collective) -> dict[tuple[int, int], int]:
    """Return the elements by (sender, receiver), if every sum is computed by the owner of its part."""
    members = range(collective.size)
    counts, total, root = collective.counts, collective.total, collective.root
    even = divided(total, collective.size)

    def moved(i: int, j: int) -> int:
        match collective.kind:
            case Kind.ALL_REDUCE:
                return even[j] + even[i]
            case Kind.REDUCE:
                return total if j == root else 0
            case Kind.BROADCAST:
                return total if i == root else 0
            case Kind.SCATTER:
                return counts[j] if i == root else 0
            case Kind.GATHER:
                return counts[i] if j == root else 0
            case Kind.ALL_GATHER:
                return counts[i]
            case Kind.REDUCE_SCATTER:
                return counts[j]

    pairs = {(i, j): moved(i, j) for i in members for j in members if i != j}
    return {pair: n for pair, n in pairs.items() if n}


def bus_elements(collective: Collective) -> float:
    """Return the minimum elements that each participant's link must carry.

    Times the element size and divided by the time, it is the bus bandwidth that NCCL reports.
    """
    n, total = collective.size, collective.total
    match collective.kind:
        case Kind.ALL_REDUCE:
            return 2 * (n - 1) / n * total
        case Kind.REDUCE | Kind.BROADCAST:
            return float(total)
        case _:
            return (n - 1) / n * total
