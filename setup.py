"""Packages and the folders that hold them; the rest of the distribution is declared in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {
    "polyhal": "frontend",
    "polyhal.hal": "hal",
    "polyhal.backends": "backends",
    "polyhal.shaders": "shaders",
    "polyhal_autoload": "polyhal_autoload",
    **{f"polyhal.{name}": f"apps/{name}" for name in find_packages("apps") if "." not in name},
}

setup(
    packages=[
        name for root, folder in FOLDERS.items() for name in (root, *(f"{root}.{p}" for p in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
