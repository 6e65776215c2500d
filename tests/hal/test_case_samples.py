"""Samples of the conformance kit's cases."""

from polyhal.hal.testing.kit.sampling import sample

CASES = [("forward", f"forward/{op}/{dtype}") for op in ("add", "sub", "sum") for dtype in ("int32", "float32")]
CASES += [("alone", "contract/fill")]


def test_one_of_consecutive_cases_of_a_group_is_selected() -> None:
    names = [name for _, name in CASES]
    selected = [name in sample(CASES, 4, "seed") for name in names]
    assert [sum(selected[:4]), sum(selected[4:6]), selected[6]] == [1, 1, True]
    assert sample(CASES, 1, "seed") == set(names)
    assert set().union(*(sample(CASES, 4, str(seed)) for seed in range(40))) == set(names)
