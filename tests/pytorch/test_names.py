"""The page for users of PyTorch equals the output of its generator, and its statements on names and arguments are true."""

from __future__ import annotations

import pytest
import torch

from tests.pytorch.names import Status, all_names
from tests.pytorch.page import PAGE, page, version
from tests.pytorch.signatures import needless, unexplained

of_the_page = pytest.mark.skipif(
    version(torch.__version__) not in PAGE.read_text(encoding="utf-8"),
    reason="the page is about another release of PyTorch",
)
"""Names and arguments differ from one release of PyTorch to the next."""


@of_the_page
def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.pytorch page"


def test_names_that_are_said_to_be_there_are_there() -> None:
    there = {f"{n.namespace}.{n.name}" for n in all_names() if n.status is Status.THERE}
    assert {"torch.softmax", "Tensor.sum", "nn.Linear", "nn.functional.relu", "optim.AdamW"} <= there
    assert len(there) > 1200


@of_the_page
def test_functions_take_the_arguments_of_pytorchs_in_its_order() -> None:
    """All of them, or a reason is declared. Another meaning in the same place would change results in silence."""
    assert unexplained() == []
    assert needless() == []
