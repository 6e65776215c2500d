"""Committed figures, and the page docs/torch-libraries.md generated from them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tests.pytorch.page import version
from tests.torch.libraries.comparison import FACTOR, TOLERANCE, Result

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[3] / "docs" / "torch-libraries.md"


def load(path: Path = RESULTS) -> tuple[str, list[Result]]:
    """Return the version of PyTorch and the committed figures."""
    if not path.exists():
        return "", []
    data = json.loads(path.read_text(encoding="utf-8"))
    results = [Result(**r) for r in data["results"]]
    for r in results:
        r.from_exact = None if r.from_exact is None else (r.from_exact[0], r.from_exact[1])
    return data["pytorch"], results


def record(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Write figures, replacing figures of the same cases."""
    kept = {(r.library, r.name): r for r in [*load(path)[1], *results]}
    lines = ",\n".join(json.dumps(asdict(r)) for _, r in sorted(kept.items()))
    path.write_text(
        f'{{\n"pytorch": {json.dumps(torch.__version__)},\n"results": [\n{lines}\n]\n}}\n', encoding="utf-8"
    )


def page(committed: tuple[str, list[Result]]) -> str:
    """Return the text of the page."""
    pytorch, results = committed
    agree = sum(r.state == "agrees" for r in results)
    whole = sum(r.state == "agrees" and not r.on_cpu for r in results)
    text = f"""\
        Libraries as PyPI has them, with {version(pytorch)} on the NumPy device: small models with random parameters,
        forward and backward, against the same program on the CPU in float32 (`python -m tests.torch.libraries`). A case
        agrees if the largest difference of each output and each gradient is below {TOLERANCE:g} of the tensor's largest
        element, or of 1e-4 of the model's largest gradient where that is more; generated tokens have to be the same.
        Where float32 is less exact than that, the device may be {FACTOR} times as far from float64 as the CPU is.
        Native is the share of calls of ops that ran on the device; the others ran on the CPU, which
        [PyTorch programs](torch.md) explains."""
    return "\n".join(
        [
            "# Libraries on PyTorch's device",
            "",
            *textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False),
            "",
            f"{agree} of {len(results)} cases agree, {whole} of them without the CPU.",
            "",
            "| library | program | outputs | gradients | ops called | native, % | on the CPU |",
            "|---|---|---:|---:|---:|---:|---|",
            *_rows(results),
            "",
        ]
    )


def _rows(results: Sequence[Result]) -> Iterator[str]:
    for r in results:
        start = f"| {r.library} {r.version} | {r.name} |"
        if r.state == "fails" or r.detail:
            yield f"{start} {r.state} | | {r.calls or ''} | | {r.detail.replace('|', '/')} |"
            continue
        gradients = f"{r.gradients:.0e}" if r.gradients else ""
        share = f"{100 * r.native:.1f}"
        where = ", ".join(n.removeprefix("aten.").removesuffix(".default") for n in r.on_cpu).replace("_", "\\_")
        if r.from_exact:
            gradients += f"; from float64 {r.from_exact[0]:.0e}, the CPU {r.from_exact[1]:.0e}"
        mark = "" if r.state == "agrees" else " **differs**"
        outputs = f"{r.outputs:.0e}" if r.outputs else "the same"
        yield f"{start} {outputs}{mark} | {gradients} | {r.calls} | {share} | {where} |"
