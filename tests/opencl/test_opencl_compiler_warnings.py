"""Warnings about compilers are suppressed while any thread builds a program."""

from __future__ import annotations

import threading
import warnings

import pyopencl as cl
import pytest

from polyhal.backends.opencl_c import compiler_warnings


def test_a_thread_that_has_built_lets_the_warnings_of_others_rest() -> None:
    begun, done = threading.Event(), threading.Event()

    def build() -> None:
        with compiler_warnings.ignored:
            begun.set()
            done.wait()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        thread = threading.Thread(target=build)
        thread.start()
        begun.wait()
        with compiler_warnings.ignored:
            done.set()
            thread.join()
            warnings.warn("the compiler said something", cl.CompilerWarning, stacklevel=1)
        assert warnings.filters == before
        with pytest.raises(cl.CompilerWarning):
            warnings.warn("the compiler said something", cl.CompilerWarning, stacklevel=1)
