"""Passes that make several ops one, or one op several: formulas, products, shapes, groups, decomposition."""

from __future__ import annotations

import pytest

from polyhal.hal.compile.passes.decompose import decompose
from polyhal.hal.compile.passes.fuse.elementwise import fuse_elementwise
from polyhal.hal.compile.passes.fuse.epilogues import fuse_epilogues
from polyhal.hal.compile.passes.fuse.norm_gradients import fuse_norm_gradients
from polyhal.hal.compile.passes.fuse.patterns import match_patterns
from polyhal.hal.compile.passes.fuse.stored_attention import join_stored_attention
from polyhal.hal.compile.passes.layout.sink_reshapes import sink_reshapes
from polyhal.hal.device import Device

from .golden import check
from .rich_device import rich_device


def test_a_composed_op_becomes_its_parts() -> None:
    """Where the device has no kernel for it; `exp` is a core method of each."""
    check(
        decompose,
        """
        %0: float32[2, 3]
        on it
        %1 = softmax(%0, axis=1): float32[2, 3]
        return %1
        """,
        """
        %0: float32[2, 3]
        on it
        %1 = max(%0, axis=(1,), keepdims=True): float32[2, 1]
        %2 = subtract(%0, %1): float32[2, 3]
        %3 = exp(%2): float32[2, 3]
        %4 = sum(%3, axis=(1,), keepdims=True): float32[2, 1]
        %5 = divide(%3, %4): float32[2, 3]
        return %5
        """,
        Device("numpy:contiguous_only"),
    )


def test_softmax_written_out() -> None:
    check(
        match_patterns,
        """
        %0: float32[2, 3]
        on it
        %1 = max(%0, axis=(1,), keepdims=False): float32[2]
        %2 = reshape(%1, shape=(2, 1)): float32[2, 1]
        %3 = subtract(%0, %2): float32[2, 3]
        %4 = exp(%3): float32[2, 3]
        %5 = sum(%4, axis=(1,), keepdims=True): float32[2, 1]
        %6 = divide(%4, %5): float32[2, 3]
        return %6
        """,
        """
        %0: float32[2, 3]
        on it
        %1 = softmax(%0, axis=1): float32[2, 3]
        return %1
        """,
    )


def test_inner_values_with_other_users_are_not_fused() -> None:
    """A backward pass reads the exponentials; and without the maximum they overflow where softmax does not."""
    text = """
        %0: float32[2, 3]
        on it
        %1 = max(%0, axis=(1,), keepdims=True): float32[2, 1]
        %2 = subtract(%0, %1): float32[2, 3]
        %3 = exp(%2): float32[2, 3]
        %4 = sum(%3, axis=(1,), keepdims=True): float32[2, 1]
        %5 = divide(%3, %4): float32[2, 3]
        return %5, %3
        """
    check(match_patterns, text, text)
    text = """
        %0: float32[2, 3]
        on it
        %1 = exp(%0): float32[2, 3]
        %2 = sum(%1, axis=(1,), keepdims=True): float32[2, 1]
        %3 = divide(%1, %2): float32[2, 3]
        return %3
        """
    check(match_patterns, text, text)


def test_layer_norm_written_out() -> None:
    check(
        match_patterns,
        """
        %0: float32[2, 4]
        %1: float32[4]
        %2: float32[4]
        on it
        %3 = mean(%0, axis=(1,), keepdims=True): float32[2, 1]
        %4 = subtract(%0, %3): float32[2, 4]
        %5 = square(%4): float32[2, 4]
        %6 = mean(%5, axis=(1,), keepdims=True): float32[2, 1]
        %7 = add(%6, 1e-05): float32[2, 1]
        %8 = sqrt(%7): float32[2, 1]
        %9 = divide(%4, %8): float32[2, 4]
        %10 = multiply(%1, %9): float32[2, 4]
        %11 = add(%10, %2): float32[2, 4]
        return %11
        """,
        """
        %0: float32[2, 4]
        %1: float32[4]
        %2: float32[4]
        on it
        %3, %4, %5 = layer_norm(%0, %1, %2, axes=1, eps=1e-05, out_dtype=None): float32[2, 4], float32[2], float32[2]
        return %3
        """,
    )


_GELU = """
    %0: float32[4]
    on it
    %1 = pow(%0, 3): float32[4]
    %2 = multiply({cubic}, %1): float32[4]
    %3 = add(%0, %2): float32[4]
    %4 = multiply(%3, 0.7978845608): float32[4]
    %5 = tanh(%4): float32[4]
    %6 = add(1, %5): float32[4]
    %7 = multiply(0.5, %0): float32[4]
    %8 = multiply(%7, %6): float32[4]
    return %8
    """


def test_gelu_written_out() -> None:
    after = "%0: float32[4]\non it\n%1 = gelu(%0, approximate='tanh'): float32[4]\nreturn %1"
    check(match_patterns, _GELU.format(cubic=0.044715), after)
    other = _GELU.format(cubic=0.0447)
    check(match_patterns, other, other)


def test_a_product_finishes_its_results() -> None:
    """Bias, activation and residual, the last behind a reshape."""
    check(
        fuse_epilogues,
        """
        %0: float32[6, 4]
        %1: float32[5, 4]
        %2: float32[5]
        %3: float32[2, 3, 5]
        on it
        %4 = linear(%0, %1, %2): float32[6, 5]
        %5 = relu(%4): float32[6, 5]
        %6 = reshape(%5, shape=(2, 3, 5)): float32[2, 3, 5]
        %7 = add(%6, %3): float32[2, 3, 5]
        return %7
        """,
        """
        %0: float32[6, 4]
        %1: float32[5, 4]
        %2: float32[5]
        %3: float32[2, 3, 5]
        on it
        %4 = permute(%1, axes=(1, 0)): float32[4, 5] strides [1, 4]
        %5 = reshape(%3, shape=(6, 5)): float32[6, 5]
        %6 = fused_matmul(%0, %4, %2, %5, steps=(('add', (0, 1), ()), ('relu', (3,), ()), ('add', (4, 2), ())), numbers=(), out_dtype=None): float32[6, 5]
        %7 = reshape(%6, shape=(2, 3, 5)): float32[2, 3, 5]
        return %7
        """,  # noqa: E501
    )


def test_a_product_that_others_read_stays() -> None:
    text = """
        %0: float32[6, 4]
        %1: float32[4, 5]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[6, 5]
        %3 = relu(%2): float32[6, 5]
        return %3, %2
        """
    check(fuse_epilogues, text, text)


def test_a_device_without_epilogues_keeps_products() -> None:
    text = """
        %0: float32[6, 4]
        %1: float32[4, 5]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[6, 5]
        %3 = relu(%2): float32[6, 5]
        return %3
        """
    check(fuse_epilogues, text, text, rich_device("fused_matmul"))


def test_reshapes_sink_below_their_users() -> None:
    check(
        sink_reshapes,
        """
        %0: float32[2, 3, 4]
        %1: float32[4]
        %2: float32[6, 4]
        on it
        %3 = exp(%0): float32[2, 3, 4]
        %4 = reshape(%3, shape=(6, 4)): float32[6, 4]
        %5 = add(%4, %1): float32[6, 4]
        %6 = multiply(%5, %2): float32[6, 4]
        %7 = sum(%6, axis=(0,), keepdims=False): float32[4]
        return %7
        """,
        """
        %0: float32[2, 3, 4]
        %1: float32[4]
        %2: float32[6, 4]
        on it
        %3 = exp(%0): float32[2, 3, 4]
        %4 = add(%3, %1): float32[2, 3, 4]
        %5 = reshape(%2, shape=(2, 3, 4)): float32[2, 3, 4]
        %6 = multiply(%4, %5): float32[2, 3, 4]
        %7 = sum(%6, axis=(0, 1), keepdims=False): float32[4]
        return %7
        """,
    )


def test_a_group_ends_with_a_reduction() -> None:
    check(
        fuse_elementwise,
        """
        %0: float32[3, 4]
        %1: float32[4]
        on it
        %2 = subtract(%0, %1): float32[3, 4]
        %3 = square(%2): float32[3, 4]
        %4 = mean(%3, axis=(1,), keepdims=True): float32[3, 1]
        return %4
        """,
        """
        %0: float32[3, 4]
        %1: float32[4]
        on it
        %2 = fused_elementwise(%0, %1, steps=(('subtract', (0, 1), ()), ('square', (2,), ())), results=(3,), reduction=('mean', (1,), True)): float32[3, 1]
        return %2
        """,  # noqa: E501
    )


def test_a_small_group_is_repeated_within_a_large_one() -> None:
    """A row that only the large group reads; values that are costly, or have other users, are computed once."""
    check(
        fuse_elementwise,
        """
        %0: float32[3, 4]
        %1: float32[4]
        on it
        %2 = multiply(%1, 0.5): float32[4]
        %3 = add(%0, %2): float32[3, 4]
        return %3
        """,
        """
        %0: float32[3, 4]
        %1: float32[4]
        on it
        %2 = fused_elementwise(%1, 0.5, %0, steps=(('multiply', (0, 1), ()), ('add', (2, 3), ())), results=(4,), reduction=None): float32[3, 4]
        return %2
        """,  # noqa: E501
    )
    for row, returned in [("exp(%1)", "%3"), ("multiply(%1, 0.5)", "%3, %2")]:
        text = f"""
            %0: float32[3, 4]
            %1: float32[4]
            on it
            %2 = {row}: float32[4]
            %3 = add(%0, %2): float32[3, 4]
            return {returned}
            """
        check(fuse_elementwise, text, text)


def test_a_group_does_not_need_itself() -> None:
    """`%4` needs `%1` by way of a sum, so that one kernel cannot make both."""
    text = """
        %0: float32[3, 4]
        on it
        %1 = exp(%0): float32[3, 4]
        %2 = sum(%1, axis=(0, 1), keepdims=True): float32[1, 1]
        %3 = divide(%1, %2): float32[3, 4]
        return %3
        """
    check(fuse_elementwise, text, text)


@pytest.mark.parametrize("settings", ["", ", precision high"])
def test_groups_keep_to_one_setting(settings: str) -> None:
    """Ops under different settings do not become one."""
    from polyhal.hal.compile.ir.parse import parse

    text = f"%0: float32[3]\non it\n%1 = exp(%0): float32[3]\non it{settings}\n%2 = add(%1, %0): float32[3]\nreturn %2"
    count = len(fuse_elementwise(parse(text, rich_device())).nodes)
    assert count == (2 if settings else 1)


def test_gradients_of_norms_read_half_precision_and_are_added_and_cast() -> None:
    start = """
        %0: bfloat16[4, 8]
        %1: float32[4, 8]
        %2: float32[8]
        %3: float32[4]
        %4: float32[4, 8]
        on it
        """
    check(
        fuse_norm_gradients,
        start
        + """%5 = cast(%0, dtype=polyhal.float32): float32[4, 8]
        %6, %7 = rms_norm_grad(%5, %1, %2, %3, axes=1): float32[4, 8], float32[8]
        %8 = add(%4, %6): float32[4, 8]
        %9 = cast(%8, dtype=polyhal.bfloat16): bfloat16[4, 8]
        return %7, %8, %9
        """,
        start
        + """%5, %6, %7 = rms_norm_add_grad(%0, %1, %2, %3, %4, axes=1, cast_dtype=polyhal.bfloat16): float32[4, 8], float32[8], bfloat16[4, 8]
        return %6, %5, %7
        """,  # noqa: E501
        rich_device(),
    )
    late = """%5, %6 = rms_norm_grad(%1, %1, %2, %3, axes=1): float32[4, 8], float32[8]
        %7 = exp(%1): float32[4, 8]
        %8 = add(%7, %5): float32[4, 8]
        return %6, %8
        """
    check(fuse_norm_gradients, start + late, start + late, rich_device())


def test_a_stored_position_attends_in_one_launch() -> None:
    """Unless something else reads the rotated queries."""
    start = """
        %0: float32[2, 1, 9, 8]
        %1: float32[2, 1, 9, 8]
        %2: float32[2, 3, 1, 8]
        %3: float32[2, 1, 1, 8]
        %4: int32[2]
        %5: float32[2, 1, 1, 4]
        on it
        """
    apart = """%6, %7, %8 = rotary_store(%0, %1, %2, %3, %3, %4, %5, %5, interleaved=True): float32[2, 1, 9, 8], float32[2, 1, 9, 8], float32[2, 3, 1, 8]
        %9 = cached_attention(%8, %6, %7, %4, scale=0.5, window=4, softcap=None): float32[2, 3, 1, 8]
        return %6, %7, %9"""  # noqa: E501
    check(
        join_stored_attention,
        start + apart,
        start
        + """%6, %7, %8 = rotary_attention(%0, %1, %2, %3, %3, %4, %5, %5, interleaved=True, scale=0.5, window=4, softcap=None): float32[2, 1, 9, 8], float32[2, 1, 9, 8], float32[2, 3, 1, 8]
        return %6, %7, %8
        """,  # noqa: E501
        rich_device(),
    )
    check(join_stored_attention, start + apart + ", %8", start + apart + ", %8", rich_device())
