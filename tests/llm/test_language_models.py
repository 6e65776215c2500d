"""Language models from files: a trained one writes its story, quantised too; memory; conversations."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")
pytest.importorskip("jinja2", reason="needs jinja2: pip install 'polyhal[llm]'")

import gguf

from polyhal import Device
from polyhal.hal import dtypes
from polyhal.hal.errors import CorruptFileError, SettingError, ShapeError
from polyhal.llm import Conversation, ModelDoesNotFitError, estimate, load, open_model, quantize
from polyhal.llm.memory import PlannedModel
from polyhal.llm.mixtures import MIXTURES

from .small_models import STORIES, stories, with_bytes

GREEDY: list[int] = json.loads((STORIES / "greedy_ids.json").read_text())


@pytest.mark.parametrize("names", [("q8_0", "q4_k_m"), pytest.param(tuple(MIXTURES), marks=pytest.mark.slow)])
def test_a_trained_model_writes_its_story_in_every_type(tmp_path: Path, names: tuple[str, ...]) -> None:
    """In 8 bits the stored tokens; in fewer bits the first ones, which are far more likely than others."""
    source = stories(tmp_path / "stories.gguf")
    model = load(source, "numpy")
    assert model.files.parameters == 260_032
    assert list(model.stream_ids(GREEDY[:1], 40, temperature=0)) == GREEDY[1:41]
    for name in names:
        target = tmp_path / f"{name}.gguf"
        assert not quantize(source, target, name)
        file = gguf.GGUFReader(target)
        assert file.fields["general.file_type"].contents() == MIXTURES[name].number
        count = 20 if name in ("f32", "f16", "q8_0", "q6_k") else 2
        assert list(load(target, "numpy").stream_ids(GREEDY[:1], count, temperature=0)) == GREEDY[1 : count + 1]
    (note,) = quantize(tmp_path / "q8_0.gguf", tmp_path / "twice.gguf", "q4_0")
    assert "weights in q8_0 are quantised twice" in note
    assert not quantize(tmp_path / "q8_0.gguf", tmp_path / "floats.gguf", "f16")
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("captured", [False, True])
def test_a_cache_of_integers_writes_the_same_story(tmp_path: Path, captured: bool) -> None:
    """Its rounding is below the distance of the story's tokens from others; half of the memory is the scales' and integers'."""
    path = stories(tmp_path / "stories.gguf")
    model = load(path, "numpy", cache_dtype="int8")
    request = model.request(GREEDY[:1], 30, temperature=0)
    engine = model.engine(2, captured=captured)
    assert list(engine.submit(request)) == GREEDY[1:31]
    keys, values, *scales = (layers[0] for layers in engine.cache.memory)
    assert [x.dtype.name for x in (keys, values, *scales)] == ["int8", "int8", "float32", "float32"]
    held = sum(x.nbytes for layers in engine.cache.memory for x in layers)
    files = open_model(path)
    floats, integers = (
        PlannedModel(files, model.model.config, model.context, dtypes.float32, kind).need(2).cache
        for kind in (dtypes.float32, dtypes.int8)
    )
    assert held == integers
    assert integers / floats == (keys.shape[-1] + 4) / (4 * keys.shape[-1])


@pytest.mark.parametrize("dtype", ["int4", "float64", "int32", 7])
def test_other_dtypes_of_a_cache_are_refused(tmp_path: Path, dtype: object) -> None:
    path = with_bytes(tmp_path / "model.gguf")
    with pytest.raises(
        SettingError, match=rf"cache_dtype is {dtype}; expected one of float32, float16, bfloat16, int8"
    ):
        load(path, "numpy", cache_dtype=dtype)


def test_the_host_holds_about_one_tensor_while_a_model_is_loaded(tmp_path: Path) -> None:
    source = stories(tmp_path / "stories.gguf")
    largest = max(w.nbytes for w in open_model(source).weights.values())
    load(source, "null")  # imports
    tracemalloc.start()
    model = load(source, "null")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert largest > 130_000
    assert peak < 2 * largest + 300_000 < model.files.nbytes  # modules and names of parameters are objects, too


def test_a_model_that_does_not_fit_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_bytes(tmp_path / "model.gguf", context=2**20)
    need, _, length = estimate(open_model(path), Device("numpy"), 2**20)
    assert length == 2**20
    monkeypatch.setattr("polyhal.llm.memory.usable_memory", lambda device: need - 2**20)
    with pytest.raises(ModelDoesNotFitError, match=r"of 1048576 tokens.*expected at most .*use --context \d+"):
        load(path, "numpy", context=2**20)
    assert load(path, "numpy", context=2**10).context == 2**10
    with pytest.raises(ModelDoesNotFitError, match=r"4 contexts of 524288 tokens.*use --slots 1, or"):
        load(path, "numpy", context=2**19, sequences=4)
    small = with_bytes(tmp_path / "small.gguf", context=2**18)
    monkeypatch.setattr("polyhal.llm.memory.usable_memory", lambda device: need + 2**20)
    with pytest.raises(ModelDoesNotFitError, match=r"and as draft model small needs .*leave out the draft"):
        load(path, "numpy", context=2**20, draft=small)


def test_conversations_drop_old_messages_and_hide_marks(tmp_path: Path) -> None:
    model = load(with_bytes(tmp_path / "model.gguf"), "numpy")
    ids = model.chat_ids([{"role": "user", "content": "</s>a"}])
    assert [i for i in ids if i in (1, 2)] == [1, 2, 1]  # the template's marks, and no other
    talk = Conversation(model)
    talk.settings.temperature, talk.settings.max_tokens, talk.settings.seed = 0.0, 3, 1
    talk.system = "s"
    first = "".join(talk.ask("a"))
    assert talk.messages[-1] == {"role": "assistant", "content": first}
    assert talk.answer is not None
    assert len(talk.answer.tokens) == 3
    next(talk.ask_again())  # stopped half-way
    assert "".join(talk.ask_again()) == first
    for _ in range(3):
        "".join(talk.ask("b" * 8))
    assert talk.dropped
    assert talk.system == "s"
    with pytest.raises(ShapeError, match="less than 64"):
        "".join(talk.ask("b" * 99))
    before = list(talk.messages)
    talk.system = "s" * 99
    with pytest.raises(ShapeError, match="less than 64"):
        "".join(talk.ask_again())
    talk.system = "s"
    with pytest.raises(ValueError, match="max_tokens is -1; expected 0 or more"):
        talk.set_number("max_tokens", -1)
    assert (talk.messages, talk.settings.max_tokens) == (before, 3)
    talk.save(tmp_path / "talk.json")
    other = Conversation(model)
    other.load(tmp_path / "talk.json")
    assert other.messages == talk.messages
    (tmp_path / "talk.json").write_text('{"schema": 1, "messages": [{"role": "user"}]}')
    with pytest.raises(CorruptFileError, match="role and content"):
        other.load(tmp_path / "talk.json")
    assert model.embed(["ab", "a"]).shape == (2, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Phi3"])
def test_folders_of_transformers_give_its_tokens(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch = pytest.importorskip("torch")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(
        **sizes, **tokens, num_key_value_heads=2, max_position_embeddings=64
    )
    torch.manual_seed(0)
    theirs = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, 0, 0.3) if p.ndim > 1 else None
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    prompt = [1, 5, 9, 33, 2, 7]
    expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
    assert list(load(tmp_path, "numpy").stream_ids(prompt, 12, temperature=0)) == expected
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[-1].unlink()
    with pytest.raises(CorruptFileError, match=shards[-1].name):
        open_model(tmp_path)
