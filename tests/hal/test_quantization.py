"""Formats of quantised weights against the `gguf` package and against the errors of ggml's own quantiser."""

import numpy as np
import pytest

from polyhal.hal.quantization.formats import FORMATS, dequantize, quantize
from polyhal.hal.quantization.tiles import from_tiles, tiled

GGML_ERRORS = {"q2_k": 0.29345, "q3_k": 0.15156, "q4_k": 0.07099, "q5_k": 0.03625, "q6_k": 0.01767, "iq4_nl": 0.07639}
"""Relative errors (root mean square) of ggml 0.20's `ggml_quantize_chunk` on the weights of `normal`."""
normal = np.random.default_rng(0).standard_normal((32, 512), np.float64).astype(np.float32)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_agree_with_gguf(name):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[name.upper()]
    form = FORMATS[name]
    assert gguf.GGML_QUANT_SIZES[kind] == (form.block, form.block_bytes)
    random = np.random.default_rng(1).integers(0, 256, (6, form.row_bytes(512)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(dequantize(random, name), gguf.quants.dequantize(random, kind))
    blocks = quantize(normal, name)
    if name not in GGML_ERRORS:
        np.testing.assert_array_equal(blocks, gguf.quants.quantize(normal, kind))
    assert not dequantize(quantize(np.zeros((1, 256), np.float32), name), name).any()


@pytest.mark.parametrize("name", GGML_ERRORS)
def test_searched_scales_are_as_good_as_those_of_ggml(name):
    error = np.sqrt(np.mean((dequantize(quantize(normal, name), name) - normal) ** 2) / np.mean(normal**2))
    assert error <= 1.02 * GGML_ERRORS[name]


def test_tiles_hold_the_words_of_16_rows_side_by_side():
    form = FORMATS["q4_0"]
    blocks = np.arange(16 * 36, dtype=np.int64).astype(np.uint8).reshape(16, 36)
    tile = tiled(blocks, form).reshape(2, 288)
    np.testing.assert_array_equal(tile[1, :32].reshape(16, 2), blocks[:, 18:20])  # the scales of the second blocks
    np.testing.assert_array_equal(tile[0, 96:160].reshape(16, 4), blocks[:, 6:10])  # the second words of the codes
    with pytest.raises(ValueError, match="multiple of 16"):
        tiled(blocks[:15], form)
    for other in FORMATS.values():
        rows = np.random.default_rng(2).integers(0, 256, (32, other.row_bytes(512)), dtype=np.uint8)
        np.testing.assert_array_equal(
            from_tiles(tiled(rows, other), other, np.reshape, np.transpose, np.concatenate), rows
        )


def test_rows_that_fill_no_blocks_are_refused():
    with pytest.raises(ValueError, match="a row of 48 weights in q4_0; expected a multiple of 32"):
        quantize(np.zeros((2, 48)), "q4_0")
    with pytest.raises(ValueError, match="a row of 40 bytes in q4_0; expected a multiple of 18"):
        dequantize(np.zeros((2, 40), np.uint8), "q4_0")
    with pytest.raises(ValueError, match="no format 'q9'"):
        dequantize(np.zeros((2, 40), np.uint8), "q9")
