"""Exported pages in a real browser: headless Chromium with WebGPU on its software adapter."""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import export
from polyhal.export.operations import OPERATIONS, operand_count
from tests.export.chromium import PROGRAM, Chromium
from tests.export.steps import TrainingStep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium; Debian, Ubuntu: apt install chromium"),
]
_LOADED = "window.polyhal || document.querySelector('#status.error')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    opened = Chromium()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def training() -> TrainingStep:
    return TrainingStep(dropout=0.25)


def _open(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.wait_for(_LOADED)
    shown = browser.evaluate("document.querySelector('#status').textContent")
    assert re.fullmatch(r"ready after [\d.]+ s; [\d.]+ [KM]iB of weights and state", shown)


def _arrays(training: TrainingStep) -> str:
    return f"{{x: {training.x.numpy().ravel().tolist()}, y: {training.y.numpy().tolist()}}}"


def test_a_page_trains_as_python_does_and_its_state_comes_back(
    browser: Chromium, training: TrainingStep, tmp_path: Path
) -> None:
    """Losses of five steps with dropout, a changed learning rate, the inference step on shared weights, and a checkpoint.

    Both sum in single precision in different orders, about 1e-6 of a value; Adam divides gradients by their size, so that a
    step of 1e-2 may differ by some 1e-5 where a gradient nearly cancels.
    """
    model = training.model.eval()
    classify = polyhal.jit(lambda x: model(x))
    with polyhal.no_grad():
        for _ in range(3):
            classify(training.x)
    model.train()
    training.run()
    steps = {"train": training.step, "classify": classify}
    page = export.webgpu(steps, tmp_path / "page.html", outputs={"train": ["loss"], "classify": ["logits"]})
    _open(browser, page)
    losses = browser.evaluate(
        f"""(async () => {{
            const {{train}} = polyhal.programs, found = [];
            for (let i = 0; i < 5; i++) {{
                if (i === 3) train.set("lr", 0.05);
                found.push((await train.run(i ? {{}} : {_arrays(training)})).loss[0]);
            }}
            return found;
        }})()"""
    )
    expected = []
    for i in range(5):
        if i == 3:
            training.optimizer.param_groups[0]["lr"] = 0.05
        expected.append(training.run())
    np.testing.assert_allclose(losses, expected, rtol=1e-4)

    logits = browser.evaluate(
        f"polyhal.programs.classify.run({{x: {training.x.numpy().ravel().tolist()}}}).then((r) => [...r.logits])"
    )
    model.eval()
    with polyhal.no_grad():
        np.testing.assert_allclose(logits, model(training.x).numpy().ravel(), rtol=1e-3, atol=1e-3)

    saved = browser.evaluate(
        """(async () => {
            const bytes = new Uint8Array(await (await polyhal.checkpoint()).arrayBuffer());
            return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
        })()"""
    )
    path = tmp_path / "state.safetensors"
    path.write_bytes(base64.b64decode(saved))
    state = polyhal.load(path, "numpy")
    own = training.model.state_dict()
    assert set(own) <= set(state)
    for name, tensor in own.items():
        np.testing.assert_allclose(state[name].numpy(), tensor.numpy(), atol=1e-3)
    training.model.load_state_dict({name: state[name] for name in own})
    with polyhal.no_grad():
        np.testing.assert_allclose(model(training.x).numpy().ravel(), logits, rtol=1e-5, atol=1e-5)

    next_loss = browser.evaluate("polyhal.programs.train.run().then((r) => r.loss[0])")
    again = browser.evaluate(
        f"""(async () => {{
            const bytes = Uint8Array.from(atob("{saved}"), (c) => c.charCodeAt(0));
            polyhal.restore(bytes.buffer);
            return (await polyhal.programs.train.run()).loss[0];
        }})()"""
    )
    assert again == next_loss  # weights, moments, step count, learning rate and random numbers
    assert browser.console == []


def test_a_page_has_the_bits_of_wgpu_on_the_same_driver(
    browser: Chromium, training: TrainingStep, tmp_path: Path
) -> None:
    """Losses of four training steps with dropout: the same shaders, translated to SPIR-V by two libraries."""
    assert PROGRAM is not None
    places = (Path("/usr/lib/chromium"), Path(PROGRAM).resolve().parent)
    driver = next((p / "vk_swiftshader_icd.json" for p in places if (p / "vk_swiftshader_icd.json").exists()), None)
    if driver is None:
        pytest.skip("Chromium's Vulkan driver is not found")
    page = export.webgpu(training.step, tmp_path / "page.html", outputs=["loss"])
    program = export.record_program(training.step, "described:webgpu,record", "webgpu", outputs=["loss"])
    export.save_program(program, tmp_path / "program")
    np.savez(tmp_path / "program" / "inputs.npz", x=training.x.numpy(), y=training.y.numpy())
    words = [sys.executable, "-m", "tests.export.play", str(tmp_path / "program"), str(tmp_path / "losses"), "4"]
    environment = {**os.environ, "VK_ICD_FILENAMES": str(driver)}
    subprocess.run(words, check=True, env=environment, cwd=Path(__file__).parents[2], timeout=300)
    _open(browser, page)
    code = f"""(async () => {{
        const losses = [];
        for (let i = 0; i < 4; i++) losses.push((await polyhal.programs.step.run({_arrays(training)})).loss[0]);
        return losses;
    }})()"""
    losses = np.array(browser.evaluate(code), np.float32)
    np.testing.assert_array_equal(losses, np.fromfile(tmp_path / "losses", np.float32))
    assert len(set(losses)) == 4


def test_errors_say_what_to_do(browser: Chromium, training: TrainingStep, tmp_path: Path) -> None:
    _open(browser, export.webgpu(training.step, tmp_path / "page.html", title="</script><b>"))

    def error(expression: str) -> str:
        code = f"(async () => {{ try {{ await ({expression}); }} catch (e) {{ return e.message; }} }})()"
        return str(browser.evaluate(code))

    run = "polyhal.programs.step.run"
    assert error(f"{run}({{z: [1]}})") == 'step has no input "z"; it has x, y'
    assert error(f"{run}({{y: [1, 2]}})") == '"y" got 2 numbers; expected 8 numbers of shape [8]'
    assert error(f"{run}({{}}, {{read: ['loss']}})") == 'step has no output "loss"; it has result'
    assert error("polyhal.programs.step.set('rate', 1)").startswith('there is no number "rate"; there are ')
    assert error("polyhal.restore(new ArrayBuffer(3))").startswith("this is no checkpoint: it has 3 bytes")
    assert browser.evaluate("document.title") == "</script><b>"


def test_a_missing_feature_is_named(browser: Chromium, training: TrainingStep, tmp_path: Path) -> None:
    """The software adapter has no 16-bit floats."""
    browser.open(export.webgpu(training.step, tmp_path / "page.html", float16=True))
    browser.wait_for(_LOADED)
    shown = browser.evaluate("document.querySelector('#status').textContent")
    assert shown == "this GPU lacks shader-f16; export without float16, then 16-bit weights are computed in 32 bits"
    browser.console.clear()


def test_arithmetic_of_numbers_is_pythons(browser: Chromium, training: TrainingStep, tmp_path: Path) -> None:
    """Functions of the standard library of C and of JavaScript may differ in the last bit; everything else is exact."""
    _open(browser, export.webgpu(training.step, tmp_path / "page.html"))
    samples: list[Any] = [3, -7, 2**70, 0.5, -2.25, 1e300, True]
    cases, expected = [], []
    for name, function in OPERATIONS.items():
        for operands in itertools.product(samples, repeat=operand_count(name)):
            if name == "pow" and (abs(operands[1]) > 100 or operands[0] < 0 or operands[0] > 1e200):
                continue
            try:
                value = function(*operands)
            except (ValueError, ZeroDivisionError, OverflowError):
                continue
            if isinstance(value, complex):
                continue
            cases.append([name, [_encoded(x) for x in operands]])
            expected.append(value)
    found = browser.evaluate(
        f"""import("polyhal/numbers").then(({{OPERATIONS}}) => {json.dumps(cases)}.map(([name, operands]) => {{
            const read = ([type, x]) => (type === "int" ? BigInt(x) : type === "bool" ? x === "True" : Number(x));
            const value = OPERATIONS[name](...operands.map(read));
            return [typeof value, String(value)];
        }}))"""
    )
    assert len(found) == len(expected) > 500
    for case, (kind, text), value in zip(cases, found, expected, strict=True):
        if kind == "bigint":
            assert type(value) in (int, bool), case
            assert int(text) == value, case
        elif kind == "boolean":
            assert (text == "true") == value, case
        else:
            assert math.isclose(float(text.replace("Infinity", "inf")), value, rel_tol=4e-16), case


def _encoded(x: Any) -> list[str]:
    return [type(x).__name__, repr(x)]


def test_a_folder_works_from_a_server(browser: Chromium, training: TrainingStep, tmp_path: Path) -> None:
    import functools
    import threading
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    folder = export.webgpu(training.step, tmp_path / "page", outputs=["loss"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.open(f"http://127.0.0.1:{server.server_address[1]}/")
        browser.wait_for(_LOADED)
        loss = browser.evaluate(f"polyhal.programs.step.run({_arrays(training)}).then((r) => r.loss[0])")
    finally:
        server.shutdown()
        server.server_close()
    np.testing.assert_allclose(loss, training.run(), rtol=1e-5)


def test_a_language_model_trains_and_predicts_as_in_python(browser: Chromium, tmp_path: Path) -> None:
    """Embeddings, attention of separate ops, layer norms, tied weights, and indices in int32, over three steps of Adam."""
    from polyhal import optim
    from polyhal.models import GPT, GPTConfig
    from polyhal.nn import functional as F

    generator = np.random.default_rng(0)
    polyhal.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=16), device="numpy")
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    tokens = polyhal.tensor(generator.integers(0, 11, (2, 9)), device="numpy")

    @polyhal.jit
    def train(x: polyhal.Tensor, y: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss: polyhal.Tensor = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    predict = polyhal.jit(lambda x, last: model(x)[0][last])
    last = polyhal.tensor(np.array([5]), device="numpy")
    with polyhal.no_grad():
        for _ in range(3):
            predict(x, last)
    for _ in range(3):
        train(x, y)
    page = export.webgpu({"train": train, "predict": predict}, tmp_path / "page.html", outputs=["result"])
    _open(browser, page)
    given = f"{{x: {x.numpy().ravel().tolist()}, y: {y.numpy().ravel().tolist()}}}"
    found = browser.evaluate(
        f"""(async () => {{
            const {{train, predict}} = polyhal.programs, found = [];
            for (let i = 0; i < 3; i++) found.push((await train.run({given})).result[0]);
            const {{x}} = {given};
            return [found, [...(await predict.run({{x, last: [5]}})).result]];
        }})()"""
    )
    np.testing.assert_allclose(found[0], [train(x, y).item() for _ in range(3)], rtol=1e-4)
    with polyhal.no_grad():
        np.testing.assert_allclose(found[1], model(x).numpy()[0, 5], rtol=2e-3, atol=2e-3)
    assert browser.console == []
