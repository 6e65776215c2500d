"""The page docs/model-formats.md: it states the committed results, which a sample of the cases reproduces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

from polyhal.llm.mixtures import MIXTURES
from tests.llm.formats.cases import TYPES
from tests.llm.formats.comparison import FOLDER, LIMIT, Case, logits_of, perplexity, results
from tests.llm.formats.page import PAGE, page
from tests.models.architectures.cases import CASES

from .small_models import stories


def test_the_page_states_results_within_the_limit() -> None:
    found = results()
    assert PAGE.read_text(encoding="utf-8") == page(found)
    assert list(found["cases"]) == list(CASES)
    for row in found["cases"].values():
        assert list(row) == [FOLDER, *TYPES]
        assert all(entry["difference"] <= LIMIT for entry in row.values())
        assert row["f32"]["equal"] == 48
    trained = found["perplexity"]["types"]
    assert list(trained) == list(MIXTURES)
    assert trained["f32"]["greedy"] == trained["f32"]["of"] == 255
    for row in trained.values():
        assert row["ours"] == pytest.approx(row["theirs"], rel=0.02)  # llama.cpp rounds activations to 8 bits


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("Mixtral", ("q4_k_m",)), *(pytest.param(n, (FOLDER, *TYPES), marks=pytest.mark.slow) for n in CASES)],
)
def test_files_of_each_type_give_the_logits_of_their_weights_as_floats(
    tmp_path: Path, name: str, kinds: tuple[str, ...]
) -> None:
    case = Case(name, tmp_path)
    for kind in kinds:
        assert case.row(kind)["difference"] <= LIMIT


def test_perplexity_of_the_trained_model_is_as_recorded(tmp_path: Path) -> None:
    found = results()["perplexity"]
    path = stories(tmp_path / "stories.gguf")
    got = [perplexity(logits_of(path, ids), ids) for ids in found["ids"]]
    assert float(np.exp(np.mean(np.log(got)))) == pytest.approx(found["types"]["f32"]["ours"], rel=1e-4)
