"""Layers of hal: every package has one, imports run in one direction, and no packages import each other in a cycle."""

from __future__ import annotations

from layers import HAL, UPWARD, arrows, cycles, downward, package_of
from survey import this_tree

RANK = {package: rank for rank, layer in enumerate(HAL) for package in layer.packages}


def test_every_package_of_hal_has_one_layer() -> None:
    packages = {package_of(m, "polyhal.hal") for m in this_tree().modules} - {""}
    assert sorted(p for layer in HAL for p in layer.packages) == sorted(packages)


def test_imports_never_lead_to_a_higher_layer() -> None:
    upward = [
        (i.source, i.target, i.when)
        for (a, b), imports in arrows(this_tree(), "polyhal.hal").items()
        for i in imports
        if RANK[a] < RANK[b]
    ]
    assert sorted({(source, target) for source, target, _ in upward}) == sorted(UPWARD)
    assert {when for *_, when in upward} == {"lazy"}, "exceptions are imports inside of functions"


def test_no_packages_of_hal_import_each_other() -> None:
    assert cycles(downward(arrows(this_tree(), "polyhal.hal"))) == []


def test_a_cycle_of_packages_is_found() -> None:
    assert cycles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]) == [["a", "b", "c"]]
