"""Choice of the default device: all orders of speeds, all sets of cards, and cards listed by several backends."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest
from device_fakes import ACCELERATOR, ALL, CARDS, CPU, CPUS, GPU, Clock, fake, info, names_of, with_backends
from hypothesis import given
from hypothesis import strategies as st

from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.system.discovery import ranking
from polyhal.hal.system.discovery.benchmark_cache import MARGIN, BenchmarkResult

pytestmark = pytest.mark.usefixtures("speeds_folder")


# --- the order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cards", [c for n in range(4) for c in itertools.combinations(CARDS, n)], ids="+".join)
def test_the_default_for_every_order_of_the_cpu_devices_without_cards_and_for_two_with_every_set_of_cards(
    cards: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = [tuple(CPUS), tuple(CPUS)[::-1]] if cards else list(itertools.permutations(CPUS))
    for number, order in enumerate(orders):
        monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / str(number)))
        clock = Clock(**{name: 1.0 + i for i, name in enumerate(order)})
        chosen = (
            with_backends(*(ALL[n] for n in (*cards, *order[::-1])), run_benchmark=clock)
            .open(None)
            .name.partition(":")[0]
        )
        if cards:
            assert chosen == next(n for n in ("card", "integrated", "accelerator") if n in cards)
        else:
            assert chosen == order[0]
        assert len(clock.measured) == len(cards) + len(CPUS)


def test_the_order_of_all_devices_for_every_order_of_speeds() -> None:
    listed = [c for spec in ALL.values() for c in with_backends(spec).candidates()]
    for seconds in itertools.permutations(range(1, len(listed) + 1)):
        speeds = {c.name: BenchmarkResult(s, 10.0, 512, "2026-01-01") for c, s in zip(listed, seconds, strict=True)}
        taken = [speeds[c.name].seconds for c in ranking.rank(listed, lambda c, speeds=speeds: speeds[c.name])]
        assert all(t <= MARGIN * min(taken[i:]) for i, t in enumerate(taken))


def test_devices_that_are_about_equally_fast_keep_their_order() -> None:
    listed = [c for spec in ALL.values() for c in with_backends(spec).candidates()]
    for factors in itertools.product((1.0, MARGIN), repeat=len(listed)):
        speeds = {c.name: BenchmarkResult(s, 10.0, 512, "2026-01-01") for c, s in zip(listed, factors, strict=True)}
        ordered = [c.backend.name for c in ranking.rank(listed, lambda c, speeds=speeds: speeds[c.name])]
        assert ordered == ["card", "integrated", "accelerator", "intel", "pocl", "wgpu", "numpy"]


outcomes = st.one_of(
    st.none(),
    st.just(BenchmarkResult(0.0, 0.0, 0, "2026-01-01", "the driver crashed")),
    st.floats(1e-9, 1e3).map(lambda s: BenchmarkResult(s, 10.0, 512, "2026-01-01")),
)


@given(st.lists(outcomes, min_size=len(ALL), max_size=len(ALL)), st.permutations(list(ALL)))
def test_a_device_moves_back_only_for_a_clearly_faster_one_or_because_it_failed(
    found: list[BenchmarkResult | None], names: list[str]
) -> None:
    listed = [c for name in names for c in with_backends(ALL[name]).candidates()]
    speeds = {c.name: s for c, s in zip(listed, found, strict=True)}
    ordered, preferred = ranking.rank(listed, lambda c: speeds[c.name]), ranking.in_order(listed)
    failed = [s is not None and bool(s.problem) for s in map(speeds.get, names_of(ordered))]
    assert failed == sorted(failed)
    working = ordered[: len(ordered) - sum(failed)]
    seconds = [None if (s := speeds[c.name]) is None else s.seconds for c in working]
    for i, own in enumerate(seconds):
        behind = [s for s in seconds[i:] if s is not None]
        assert own is None or own <= MARGIN * min(behind)
        for c, theirs in zip(working[i:], seconds[i:], strict=True):
            if preferred.index(c) < preferred.index(working[i]):
                assert theirs is not None
                assert theirs > MARGIN * min(behind)


@pytest.mark.parametrize("cards", [["card"], ["accelerator"], ["card", "integrated", "accelerator"]])
def test_a_card_that_is_clearly_slower_than_a_processor_is_not_the_default(cards: list[str]) -> None:
    clock = Clock(card=4.0, integrated=4.0, accelerator=4.0, intel=0.1, pocl=0.1, numpy=0.2, wgpu=1.0)
    specs = [ALL[n] for n in (*cards, *CPUS)]
    found = with_backends(*specs, run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert f"{cards[0]}:0 takes 40.0 times as long; " in found.explain_default()
    assert names_of(found.candidates())[-1] == f"{cards[-1]}:0"
    assert found.open(f"{cards[0]}:0").name == f"{cards[0]}:0"
    again = with_backends(*specs, run_benchmark=Clock())
    assert again.open(None).name == "intel:0"
    assert again.explain_default() == found.explain_default()


def test_a_card_that_is_about_as_fast_as_the_processor_is_the_default() -> None:
    found = with_backends(*ALL.values(), run_benchmark=Clock(card=1.4, intel=1.0))
    assert found.open(None).name == "card:0"
    assert found.explain_default() == (
        f"card:0 (Big card): the only GPU of 7 devices, measured at 7.1x NumPy on {datetime.now(UTC):%Y-%m-%d} "
        "(integrated:0 has 10.0x, and 10.7x would displace it)"
    )


def test_a_slow_device_of_little_memory_and_low_priority_is_never_the_default() -> None:
    """The accelerator is 40 times slower, has 64 MiB, and its priority ranks it behind all others."""
    odd = fake("odd", info("Odd board", ACCELERATOR, 64 << 20), priority=-200)
    clock = Clock(odd=40.0, numpy=1.0)
    found = with_backends(odd, CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "numpy"
    found = with_backends(odd, fake("board", info("Board", ACCELERATOR, 64 << 20)), CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "numpy"
    assert ": board:0 has 64 MiB, less than 512; the first of the 2 other devices" in found.explain_default()


def test_the_default_can_be_set_regardless_of_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(card=40.0)
    found = with_backends(*ALL.values(), run_benchmark=clock)
    found.set_default("card")
    assert found.open(None).name == "card:0"
    monkeypatch.setenv("POLYHAL_DEVICE", "card")
    chosen = with_backends(*ALL.values(), run_benchmark=clock)
    assert chosen.explain_default() == "card:0, because POLYHAL_DEVICE=card"
    assert clock.asked == []


def test_numpy_is_the_default_if_no_other_device_is_found() -> None:
    clock = Clock()
    found = with_backends(CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "numpy"
    assert found.explain_default() == "numpy (NumPy on x86_64): the only device found"
    assert clock.asked == []


def test_a_software_rasteriser_is_a_cpu_regardless_of_its_claim() -> None:
    liar = fake("wgpu", info("llvmpipe (LLVM 15.0.6, 256 bits)", GPU), priority=90)
    found = with_backends(liar, CPUS["intel"], run_benchmark=Clock(wgpu=2.0, intel=1.0))
    assert found.open(None).name == "intel:0"
    assert found.open("cpu:1").name == "wgpu:0"


def test_several_cards_are_measured_and_the_faster_wins() -> None:
    specs = fake("a", info("Card one", GPU), priority=90), fake("b", info("Card two", GPU))
    clock = Clock(a=2.0, b=1.0)
    found = with_backends(*specs, CPUS["intel"], CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "b:0"
    assert clock.measured == ["a:0", "b:0", "intel:0", "numpy"]
    assert "a:0 takes 2.0 times as long; the first of the 3 other devices, by type, " in found.explain_default()


def test_identical_cards_are_not_measured() -> None:
    cards = [info("Card", GPU, selector=str(i), id=f"pci/{i}") for i in range(8)]
    clock = Clock()
    found = with_backends(fake("a", *cards), CPUS["numpy"], run_benchmark=clock)
    assert found.open("gpu").name == "a:0"
    assert clock.asked == []
    assert found.open(None).name == "a:0"
    assert clock.asked == ["a:0", "numpy"] * 2
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    reason = f"the first of 8 GPUs, by priority and memory, measured at 10.0x NumPy on {day}"
    assert found.explain_default() == f"a:0 (Card): {reason}"


def test_if_no_card_can_be_opened_the_cpu_devices_are_measured() -> None:
    clock = Clock(pocl=1.0, intel=2.0)
    found = with_backends(fake("a", info("Card", GPU), refuse=["0"]), CPUS["intel"], CPUS["pocl"], run_benchmark=clock)
    assert found.open(None).name == "pocl:0"
    assert found.explain_default() == (
        "pocl:0 (pthread-Xeon): a:0 could not be opened; intel:0 takes 2.0 times as long; the only other device, "
        f"measured at 10.0x NumPy on {datetime.now(UTC):%Y-%m-%d}"
    )


# --- one card, several backends -------------------------------------------------------------------------------------


def test_a_card_with_one_identity_in_two_backends_is_one_device() -> None:
    through_opencl = fake("opencl", info("gfx1030", GPU, id="pci/0000:03:00.0"), priority=50)
    through_vulkan = fake("wgpu", info("AMD Radeon RX 6800", GPU, id="pci/0000:03:00.0"), priority=40)
    clock = Clock(opencl=2.0, wgpu=1.0)
    found = with_backends(through_opencl, through_vulkan, CPUS["numpy"], run_benchmark=clock)
    assert found.open("gpu").name == "wgpu:0"
    assert [names_of(g) for g in ranking.group_by_card(found.candidates())] == [["wgpu:0", "opencl:0"], ["numpy"]]
    assert "opencl:0 takes 2.0 times as long; the first of the 2 other devices" in found.explain_default()
    other = with_backends(through_opencl, through_vulkan, CPUS["numpy"], run_benchmark=Clock(opencl=1.0))
    assert other.open("gpu").name == "wgpu:0", "results are cached"


def test_a_third_backend_joins_by_name_two_that_share_an_identity() -> None:
    cards = ("uuid/0", "uuid/1")
    shared = [fake(n, *[info("Card", GPU, selector=str(k), id=i) for k, i in enumerate(cards)]) for n in ("x", "y")]
    other = fake("z", *[info("Card", GPU, selector=str(k), id=f"vulkan card {k}") for k in range(2)])
    groups = ranking.group_by_card(with_backends(*shared, other).candidates())
    assert sorted(sorted(names_of(g)) for g in groups) == [["x:0", "y:0", "z:0"], ["x:1", "y:1", "z:1"]]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("NVIDIA H200", "NVIDIA Corporation"), ("NVIDIA H200", "")),
        (("Intel(R) UHD Graphics 620", "Intel(R) Corporation"), ("Intel(R) UHD Graphics 620 (KBL GT2)", "Intel")),
        (("NVIDIA GeForce RTX 4090", "NVIDIA"), ("nvidia geforce rtx 4090", "nvidia")),
    ],
)
def test_cards_are_matched_by_name_if_identities_are_not_comparable(a: tuple[str, str], b: tuple[str, str]) -> None:
    def cards(backend: str, name: str, vendor: str) -> BackendSpec:
        return fake(backend, *(info(name, GPU, selector=str(i), vendor=vendor, id=f"{backend}/{i}") for i in range(2)))

    found = with_backends(cards("opencl", *a), cards("wgpu", *b), run_benchmark=Clock(opencl=2.0, wgpu=1.0))
    assert found.open("gpu:0").name == "wgpu:0"
    assert found.open("gpu:1").name == "wgpu:1"
    groups = [names_of(g) for g in ranking.group_by_card(found.candidates())]
    assert groups == [["wgpu:0", "opencl:0"], ["wgpu:1", "opencl:1"]]


def test_different_cards_of_one_name_are_distinct() -> None:
    first = fake("opencl", info("H200", GPU, id="pci/0000:01:00.0"))
    second = fake("cuda", info("H200", GPU, id="pci/0000:02:00.0"))
    assert len(ranking.group_by_card(with_backends(first, second).candidates())) == 2


def test_the_drivers_of_one_processor_are_separate_devices() -> None:
    same = [fake(name, info("Xeon", CPU, id=f"cpu/{name}")) for name in ("intel", "pocl")]
    assert len(ranking.group_by_card(with_backends(*same).candidates())) == 2


def test_a_card_that_one_backend_cannot_open_is_opened_by_the_other() -> None:
    card = info("Card", GPU, id="pci/0000:03:00.0")
    found = with_backends(
        fake("a", card, refuse=["0"]), fake("b", card), CPUS["numpy"], run_benchmark=Clock(a=1.0, b=2.0)
    )
    assert found.open("gpu").name == "b:0"
