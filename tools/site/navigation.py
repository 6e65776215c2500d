"""The sections of the site and their pages, in the order of the navigation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Section(NamedTuple):
    """A caption of the navigation and the pages below it, by name without suffix."""

    caption: str
    pages: tuple[str, ...]


SECTIONS = (
    Section(
        "Getting started",
        ("quickstart", "installing", "coming-from-pytorch", "tour", "examples", "command-line", "comparison"),
    ),
    Section(
        "Guides",
        (
            "training",
            "fine-tuning",
            "running-models",
            "profiling",
            "several-devices",
            "serving",
            "data-loading",
            "saving",
            "exporting",
            "precision",
            "memory",
            "debugging",
            "troubleshooting",
        ),
    ),
    Section(
        "Models and programs of others",
        ("language-models", "decoders", "model-formats", "onnx", "torch", "array-api"),
    ),
    Section(
        "Devices",
        ("devices", "nvidia", "simulator", "verifying", "tuning", "user-kernels", "streams", "quirks", "cards"),
    ),
    Section("Many devices", ("parallel", "model-parallel", "distributed", "planning")),
    Section("Functions", ("transforms-of-functions", "distributions")),
    Section(
        "Concepts",
        (
            "architecture",
            "contract",
            "ops",
            "autograd",
            "capture",
            "scheduler",
            "kernels",
            "kernel-designs",
            "glossary",
        ),
    ),
    Section("Extending", ("adding-a-backend", "adding-an-op", "adding-a-fusion")),
    Section("API reference", ("reference/index",)),
    Section(
        "Measured and generated",
        (
            "performance",
            "performance-notes",
            "coverage",
            "devices-reported",
            "kernels-index",
            "reliability",
            "torch-coverage",
            "torch-libraries",
        ),
    ),
    Section("Project", ("contributing", "changelog", "stability")),
)


def with_others(pages: Iterable[str]) -> tuple[Section, ...]:
    """Return the sections, and the pages that are in none of them in a last one."""
    listed = {page for section in SECTIONS for page in section.pages}
    others = sorted({*pages} - listed - {"index"})
    return (*SECTIONS, *([Section("More", tuple(others))] if others else []))


OF_THE_ROOT = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages that are files of the repository's root."""
