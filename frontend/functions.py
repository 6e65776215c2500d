"""Every public op as a function, `polyhal.softmax(x)` for instance; the types are in functions.pyi."""

from polyhal.hal.ops import PUBLIC

globals().update(PUBLIC)
__all__ = sorted(PUBLIC)
