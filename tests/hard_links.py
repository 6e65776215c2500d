"""Replace equal files by hard links: `python tests/hard_links.py FOLDER`.

A wheel cannot contain symbolic links, so wheels of shared libraries contain one copy for each of a library's names.
"""

from __future__ import annotations

import filecmp
import os
import sys
from collections import defaultdict
from pathlib import Path

_MIN_BYTES = 1 << 20


def link_equal_files(folder: Path) -> int:
    """Replace the copies of each large file by hard links, and return the bytes that this frees."""
    by_size: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size >= _MIN_BYTES:
            by_size[path.stat().st_size].append(path)
    freed = 0
    for size, paths in by_size.items():
        originals: list[Path] = []
        for path in paths:
            original = next((o for o in originals if filecmp.cmp(o, path, shallow=False)), None)
            if original is None:
                originals.append(path)
            elif not path.samefile(original):
                link = path.with_name(path.name + ".link")
                os.link(original, link)
                link.replace(path)
                freed += size
    return freed


if __name__ == "__main__":
    print(f"hard links for equal files free {link_equal_files(Path(sys.argv[1])) >> 20} MB")
