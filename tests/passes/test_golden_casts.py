"""Passes that write a result in the dtype of its cast, and that join the ops around batch norm."""

from __future__ import annotations

from polyhal.hal.compile.passes.fuse.cast_results import cast_results
from polyhal.hal.compile.passes.fuse.patterns import match_patterns

from .golden import check
from .rich_device import rich_device

_NORM_AND_RELU = """
    %0: float32[4, 3]
    %1: float32[3]
    %2: float32[3]
    %3: float32[4, 3]
    on it
    %4, %5, %6 = batch_norm(%0, %1, %2, eps=1e-05): float32[4, 3], float32[3], float32[3]
    %7 = relu(%4): float32[4, 3]
    %8 = relu_grad(%3, %7): float32[4, 3]
    %9, %10, %11 = batch_norm_grad(%8, %0, %1, %5, %6, eps=1e-05): float32[4, 3], float32[3], float32[3]
    return %7, %9, %10, %11{more}
    """

_JOINED_NORM = """
    %0: float32[4, 3]
    %1: float32[3]
    %2: float32[3]
    %3: float32[4, 3]
    on it
    %4, %5, %6 = batch_norm_relu(%0, %1, %2, eps=1e-05): float32[4, 3], float32[3], float32[3]
    """


def test_relu_joins_batch_norm() -> None:
    """In the forward pass and in the gradient; only in the first on some devices; not if another op reads the norm."""
    text, read = _NORM_AND_RELU.format(more=""), _NORM_AND_RELU.format(more=", %4")
    both = """
    %7, %8, %9 = batch_norm_relu_grad(%3, %0, %1, %2, %5, %6, eps=1e-05): float32[4, 3], float32[3], float32[3]
    return %4, %7, %8, %9
    """
    forward = """
    %7 = relu_grad(%3, %4): float32[4, 3]
    %8, %9, %10 = batch_norm_grad(%7, %0, %1, %5, %6, eps=1e-05): float32[4, 3], float32[3], float32[3]
    return %4, %8, %9, %10
    """
    check(match_patterns, text, _JOINED_NORM.rstrip() + both)
    check(match_patterns, text, _JOINED_NORM.rstrip() + forward, rich_device("batch_norm_relu_grad"))
    check(match_patterns, text, text, rich_device("batch_norm_relu"))
    check(match_patterns, read, read)


def test_the_end_of_a_residual_block_joins_batch_norm() -> None:
    text = """
        %0: bfloat16[4, 3, 2, 5]
        %1: float32[3]
        %2: bfloat16[4, 3, 2, 5]
        on it
        %3, %4, %5 = batch_norm(%0, %1, None, eps=1e-05): bfloat16[4, 3, 2, 5], float32[3], float32[3]
        %6 = add(%2, %3): bfloat16[4, 3, 2, 5]
        %7 = relu(%6): bfloat16[4, 3, 2, 5]
        return %7, %4, %5
        """
    joined = """
        %0: bfloat16[4, 3, 2, 5]
        %1: float32[3]
        %2: bfloat16[4, 3, 2, 5]
        on it
        %3, %4, %5 = batch_norm_add_relu(%0, %2, %1, None, eps=1e-05): bfloat16[4, 3, 2, 5], float32[3], float32[3]
        return %3, %4, %5
        """
    check(match_patterns, text, joined)


def test_products_write_the_dtype_of_their_cast() -> None:
    text = """
        %0: bfloat16[4, 3]
        %1: bfloat16[3, 6]
        on it
        %2 = matmul(%0, %1, out_dtype=None): bfloat16[4, 6]
        %3 = reshape(%2, shape=(4, 6, 1)): bfloat16[4, 6, 1]
        %4 = cast(%3, dtype=polyhal.float32): float32[4, 6, 1]
        return %4{more}
        """
    wide = """
        %0: bfloat16[4, 3]
        %1: bfloat16[3, 6]
        on it
        %2 = matmul(%0, %1, out_dtype=polyhal.float32): float32[4, 6]
        %3 = reshape(%2, shape=(4, 6, 1)): float32[4, 6, 1]
        return %3
        """
    check(cast_results, text.format(more=""), wide)
    read = text.format(more=", %2")
    check(cast_results, read, read)


def test_norms_round_their_result_for_the_only_cast_that_reads_it() -> None:
    text = """
        %0: float32[4, 3]
        on it
        %1, %2 = rms_norm(%0, None, axes=1, eps=1e-05, out_dtype=None): float32[4, 3], float32[4]
        %3 = cast(%1, dtype=polyhal.bfloat16): bfloat16[4, 3]
        return %3, %2{more}
        """
    rounded = """
        %0: float32[4, 3]
        on it
        %1, %2 = rms_norm(%0, None, axes=1, eps=1e-05, out_dtype=polyhal.bfloat16): bfloat16[4, 3], float32[4]
        return %1, %2
        """
    check(cast_results, text.format(more=""), rounded)
    read = text.format(more=", %1")
    check(cast_results, read, read)


def test_both_gradients_of_a_layer_are_written_wide_if_both_are_cast() -> None:
    text = """
        %0: bfloat16[4, 3]
        %1: bfloat16[4, 6]
        on it
        %2, %3 = linear_weight_grad(%0, %1, out_dtype={dtype}): {name}[3, 6], {name}[3]
        {casts}
        """
    casts = """%4 = cast(%2, dtype=polyhal.float32): float32[3, 6]
        %5 = cast(%3, dtype=polyhal.float32): float32[3]
        return %4, %5"""
    wide = text.format(dtype="polyhal.float32", name="float32", casts="return %2, %3")
    check(cast_results, text.format(dtype="None", name="bfloat16", casts=casts), wide)
    one = text.format(dtype="None", name="bfloat16", casts=casts.replace("%4, %5", "%4, %5, %3"))
    check(cast_results, one, one)


def test_gradients_of_convolutions_weights_are_written_wide() -> None:
    window = "kernel=(3, 3), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1"
    text = f"""
        %0: bfloat16[2, 3, 4, 4]
        %1: bfloat16[2, 5, 6, 6]
        on it
        %2 = conv2d_weight_grad(%0, %1, {window}, out_dtype={{dtype}}): {{name}}[3, 5, 3, 3]
        {{rest}}
        """
    cast = """%3 = cast(%2, dtype=polyhal.float32): float32[3, 5, 3, 3]
        return %3"""
    wide = text.format(dtype="polyhal.float32", name="float32", rest="return %2")
    check(cast_results, text.format(dtype="None", name="bfloat16", rest=cast), wide)


def test_relu_in_place_joins_batch_norm_in_mixed_precision() -> None:
    text = """
        %0: bfloat16[4, 3]
        %1: float32[3]
        %2: float32[3]
        %3: bfloat16[4, 3]
        on it
        %4, %5, %6 = batch_norm(%0, %1, %2, eps=1e-05): bfloat16[4, 3], float32[3], float32[3]
        %7 = relu(%4): bfloat16[4, 3] over [0]
        %8 = relu_grad(%3, %7): bfloat16[4, 3]
        %9, %10, %11 = batch_norm_grad(%8, %0, %1, %5, %6, eps=1e-05): bfloat16[4, 3], float32[3], float32[3]
        return %7, %9, %10, %11
        """
    joined = """
        %0: bfloat16[4, 3]
        %1: float32[3]
        %2: float32[3]
        %3: bfloat16[4, 3]
        on it
        %4, %5, %6 = batch_norm_relu(%0, %1, %2, eps=1e-05): bfloat16[4, 3], float32[3], float32[3]
        %7, %8, %9 = batch_norm_relu_grad(%3, %0, %1, %2, %5, %6, eps=1e-05): bfloat16[4, 3], float32[3], float32[3]
        return %4, %7, %8, %9
        """
    check(match_patterns, text, joined)
