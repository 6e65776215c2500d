"""The BERT-style encoder: the same numbers as PyTorch, Hugging Face's names and sizes, and masks."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import ShapeError
from polyhal.models import Bert, BertClassifier, BertConfig, from_bert_state

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")

BOUND = 1e-4
SMALL = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=12,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def arguments() -> list[np.ndarray]:
    """Return ids, a mask and types of two sentences; the second one is shorter."""
    mask = np.array([[1] * 9, [1] * 6 + [0] * 3])
    ids = np.random.default_rng(0).integers(1, 50, (2, 9)) * mask
    return [ids, mask, np.array([[0] * 4 + [1] * 5] * 2)]


def test_outputs_and_gradients_agree_with_pytorch(device: ph.Device) -> None:
    from tests.models.parity.comparison import compare
    from tests.models.parity.torch_bert import TorchBert

    torch.manual_seed(0)
    found = compare(Bert(SMALL, device), TorchBert(SMALL), arguments(), device)
    assert max(found.outputs, found.gradients) < BOUND, found


def test_names_and_sizes_match_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    """109,482,240 parameters in bert-base-uncased; its file has the prefix, gamma and beta, and a head."""
    for layer in (ph.nn.Linear, ph.nn.Embedding):  # drawing weights takes seconds
        monkeypatch.setattr(layer, "reset_parameters", lambda *_: None)
    monkeypatch.setattr("polyhal.models.bert.initialize", lambda *_: None)
    model = Bert(BertConfig(), "numpy")
    assert model.count_parameters() == 109_482_240
    keys = """
        embeddings.word_embeddings.weight embeddings.LayerNorm.bias encoder.layer.11.attention.self.query.weight
        encoder.layer.0.attention.output.dense.bias encoder.layer.0.attention.output.LayerNorm.weight
        encoder.layer.3.intermediate.dense.weight encoder.layer.3.output.dense.weight encoder.layer.3.output.LayerNorm.bias
        pooler.dense.weight
    """
    assert set(keys.split()) <= set(model.state_dict())
    assert len(model.state_dict()) == 5 + 12 * 16 + 2
    stored = {"bert.embeddings.LayerNorm.gamma": 1, "bert.pooler.dense.bias": 2, "cls.predictions.bias": 3}
    assert from_bert_state(stored) == {"embeddings.LayerNorm.weight": 1, "pooler.dense.bias": 2}
    assert from_bert_state({"bert.embeddings.position_ids": 0}) == {}
    assert BertConfig.from_json({"hidden_size": 24, "model_type": "bert"}) == BertConfig(hidden_size=24)


def test_masked_positions_have_no_influence(device: ph.Device) -> None:
    model = Bert(SMALL, device).eval()
    ids, mask, types = arguments()
    other = np.where(mask == 1, ids, 7)
    outs = [model(*(ph.tensor(x, device=device) for x in (tokens, mask, types)))[0].numpy() for tokens in (ids, other)]
    np.testing.assert_array_equal(outs[0][1, :6], outs[1][1, :6])
    assert np.abs(outs[0][1, 6:] - outs[1][1, 6:]).max() > 0.1
    short = model(ph.tensor(ids[1:, :6], device=device), None, ph.tensor(types[1:, :6], device=device))[0]
    np.testing.assert_allclose(short.numpy()[0], outs[0][1, :6], rtol=1e-4, atol=1e-5)


def test_the_classifier_learns(device: ph.Device) -> None:
    """Which of two tokens occurs, in captured steps."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 32)
    ids = rng.integers(3, 50, (32, 6))
    ids[np.arange(32), rng.integers(1, 6, 32)] = 1 + labels
    ph.manual_seed(0)
    model = BertClassifier(SMALL, 2, device)
    optimizer = ph.optim.AdamW(model.parameters(), lr=1e-2)

    @ph.jit
    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = ph.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batch = ph.tensor(ids, device=device), ph.tensor(labels, device=device)
    losses = [step(*batch).item() for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]
    assert {key.partition(".")[0] for key in model.state_dict()} == {"bert", "classifier"}


def test_wrong_settings_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a multiple of num_attention_heads 5"):
        BertConfig(num_attention_heads=5)
    with pytest.raises(ValueError, match="hidden_act is 'relu'"):
        BertConfig.from_json({"hidden_act": "relu"})
    with pytest.raises(ShapeError, match="T up to 12"):
        Bert(SMALL, "numpy")(ph.zeros((1, 13), "int32", "numpy"))
