"""Layers: every package of hal has one, imports run in one direction, and no packages import each other in a cycle."""

from __future__ import annotations

from layers import HAL, OTHER_FOLDERS, UPWARD, arrows, clients, cycles, downward, package_of
from survey import this_tree

RANK = {package: rank for rank, layer in enumerate(HAL) for package in layer.packages}


def test_every_package_of_hal_has_one_layer() -> None:
    packages = {package_of(m, "polyhal.hal") for m in this_tree().modules} - {""}
    assert sorted(p for layer in HAL for p in layer.packages) == sorted(packages)


def test_imports_never_lead_to_a_higher_layer() -> None:
    found = arrows(this_tree(), "polyhal.hal").items()
    upward = {(i.source, i.target) for (a, b), imports in found for i in imports if RANK[a] < RANK[b]}
    assert upward <= UPWARD.keys()


def test_no_packages_of_hal_import_each_other() -> None:
    assert cycles(downward(arrows(this_tree(), "polyhal.hal"))) == []


def test_no_packages_of_the_frontend_import_each_other() -> None:
    tree = this_tree()
    found = arrows(tree, "polyhal", leave_out=(*OTHER_FOLDERS, *clients(tree)))
    assert len(found) > 100
    assert cycles(downward(found)) == []


def test_every_exception_is_an_import_inside_of_a_function() -> None:
    imports = {(i.source, i.target, i.when) for i in this_tree().imports}
    assert [ends for ends in UPWARD if (*ends, "lazy") not in imports or (*ends, "at import") in imports] == []


def test_a_cycle_of_packages_is_found() -> None:
    assert cycles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]) == [["a", "b", "c"]]
