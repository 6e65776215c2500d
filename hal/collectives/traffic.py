"""What a collective moves: from which member to which, and how fast in relation to what it must move."""

from __future__ import annotations

from polyhal.hal.collectives.collective import Collective, Kind, divided


def traffic(collective: Collective) -> dict[tuple[int, int], int]:
    """Elements by (member that gives, member that gets), where every sum is made by the member that owns the part."""
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
    """Elements that each member's link must carry at least: times their size and over the time, the bus bandwidth of NCCL."""
    n, total = collective.size, collective.total
    match collective.kind:
        case Kind.ALL_REDUCE:
            return 2 * (n - 1) / n * total
        case Kind.REDUCE | Kind.BROADCAST:
            return float(total)
        case _:
            return (n - 1) / n * total
