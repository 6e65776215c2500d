"""llama.cpp's side of `benchmarks.llama_cpp_client`, for an interpreter that has llama-cpp-python.

`PYTHON benchmarks/llama_cpp_peer.py FILE THREADS CONTEXT` answers each line `prefill TOKENS`, `decode PROMPT TOKENS` or
`loss FILE_OF_IDS` with a line of JSON. It imports nothing of Polyhal.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class _Model:
    """A model and its context, through the functions of llama.h."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        import llama_cpp

        self._c: Any = llama_cpp
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def reset(self) -> None:
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)

    def feed(self, ids: Sequence[int], every: bool = False) -> None:
        """Process tokens, with the logits of the last, or of all."""
        c, count = self._c, len(ids)
        batch = c.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        start = self.position
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
            batch.logits[i] = every or i + 1 == count
        code = c.llama_decode(self._context, batch)
        c.llama_batch_free(batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")

    @property
    def position(self) -> int:
        """Number of tokens in the cache."""
        return int(self._c.llama_memory_seq_pos_max(self._c.llama_get_memory(self._context), 0)) + 1

    def logits(self, index: int = -1) -> Any:
        import numpy as np

        return np.ctypeslib.as_array(self._c.llama_get_logits_ith(self._context, index), (self._vocabulary,))

    def prefill(self, tokens: str) -> float:
        """Return the seconds of a prompt."""
        self.reset()
        begin = time.perf_counter()
        self.feed([(7 * i + 3) % self._vocabulary for i in range(int(tokens))])
        float(self.logits()[0])
        return time.perf_counter() - begin

    def decode(self, prompt: str, tokens: str) -> list[float]:
        """Return the seconds of each greedy token after a prompt."""
        self.reset()
        self.feed([(7 * i + 3) % self._vocabulary for i in range(int(prompt))])
        seconds = []
        for _ in range(int(tokens)):
            begin = time.perf_counter()
            self.feed([int(self.logits().argmax())])
            seconds.append(time.perf_counter() - begin)
        return seconds

    def loss(self, file: str) -> float:
        """Return the mean negative log-likelihood of ids (a JSON list) after the first one, in one context."""
        import numpy as np

        ids = json.loads(Path(file).read_text())
        self.reset()
        self.feed(ids, every=True)
        total = 0.0
        for i, token in enumerate(ids[1:]):
            scores = self.logits(i).astype(np.float64)
            top = scores.max()
            total += top + math.log(np.exp(scores - top).sum()) - scores[token]
        return total / (len(ids) - 1)


def main(path: str, threads: str, context: str) -> None:
    """Answer the lines of standard input."""
    model = _Model(path, int(threads), int(context))
    commands: dict[str, Callable[..., Any]] = {"prefill": model.prefill, "decode": model.decode, "loss": model.loss}
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(commands[name](*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
