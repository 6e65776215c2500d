"""Packages, their folders, and the description that package indexes show; pyproject.toml declares the rest."""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
FOLDERS = {
    "polyhal": "frontend",
    "polyhal.hal": "hal",
    "polyhal.backends": "backends",
    "polyhal.shaders": "shaders",
    "polyhal_autoload": "polyhal_autoload",
    **{f"polyhal.{name}": f"apps/{name}" for name in find_packages("apps") if "." not in name},
}


def description(readme: str, source: str) -> str:
    """Return the README with absolute addresses: files of the repository do not exist on a package index."""

    def absolute(found: re.Match[str]) -> str:
        view = "raw" if found["image"] else "blob"
        return f"{found['image']}[{found['text']}]({source}/{view}/main/{found['file']})"

    return re.sub(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<file>(?!https?:|#)[^)\s]+)\)", absolute, readme)


setup(
    packages=[
        name for root, folder in FOLDERS.items() for name in (root, *(f"{root}.{p}" for p in find_packages(folder)))
    ],
    package_dir=FOLDERS,
    long_description=description(
        (ROOT / "README.md").read_text(encoding="utf-8"),
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"],
    ),
    long_description_content_type="text/markdown",
)
