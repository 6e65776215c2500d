"""The page of the row kernels' macros is complete."""

from __future__ import annotations

import re
from pathlib import Path

LIB = Path(__file__).resolve().parents[2] / "shaders" / "opencl" / "lib"


def test_the_page_names_every_macro_of_rows() -> None:
    page = (LIB / "README.md").read_text(encoding="utf-8")
    defined = set(re.findall(r"(?m)^ *# *define (\w+)", (LIB / "rows.h").read_text(encoding="utf-8")))
    macros = {name for name in defined if not name.startswith("POLYHAL_")}
    missing = sorted(name for name in macros if not re.search(rf"`{name}\b", page))
    assert len(macros) > 25
    assert not missing, f"shaders/opencl/lib/README.md does not explain {', '.join(missing)}"


def test_the_page_shows_the_kernel_as_it_is() -> None:
    page = (LIB / "README.md").read_text(encoding="utf-8")
    kernel = (LIB.parent / "rowwise" / "softmax_grad.cl").read_text(encoding="utf-8")
    shown = page.split("```c\n")[1].split("```")[0]
    without_log = re.sub(r"(?s)#if LOG.*?#else\n(.*?)#endif\n", r"\1", kernel)
    assert shown.split() == without_log[without_log.index("DECLARE_ROW(g)") :].rsplit("}", 1)[0].split()
