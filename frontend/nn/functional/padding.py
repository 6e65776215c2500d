"""Padding: constants, or elements of the tensor itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.returns import Returns, returns
from polyhal.tensor import Tensor


@returns(Returns.COPY)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Extend axes by elements before and after: `pad` holds (before, after) pairs from the LAST axis on, as in PyTorch.

    `mode` is "constant" (with `value`, 0 by default), "reflect" (mirrored at the edge, which is not repeated),
    "replicate" (the edge repeated) or "circular" (from the other end). Negative widths crop. Raises ShapeError.

        >>> import polyhal
        >>> pad(polyhal.tensor([1, 2, 3], device="numpy"), (2, 1), "reflect").tolist()
        [3, 2, 1, 2, 3, 2]
    """
    return padded(input, pad, mode, value)


def padded(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad as `pad` does, for callers that only read the result: it may be the tensor itself, or a view of it."""
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ShapeError(
            message("pad", f"{len(pad)} widths for {input.ndim} axes", expected="pairs for at most all axes")
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    if mode == "constant":
        return _constant(input, pairs, 0 if value is None else value)
    if mode not in _EXTENSIONS:
        raise ShapeError(message("pad", f"mode {mode!r}", expected="constant, reflect, replicate or circular"))
    if value:
        raise ShapeError(message("pad", f"value {value} in mode {mode!r}", expected="a value in mode 'constant' only"))
    out = input
    for i, (before, after) in enumerate(pairs):
        out = _extend(out, input.ndim - 1 - i, before, after, mode)
    return out


def _constant(x: Tensor, pairs: Sequence[tuple[int, int]], value: float) -> Tensor:
    widths = [(0, 0)] * (x.ndim - len(pairs)) + list(reversed(pairs))
    if any(n + a + b < 0 for n, (a, b) in zip(x.shape, widths, strict=True)):
        raise ShapeError(message("pad", f"widths {widths} crop more than shape {x.shape} has"))
    if any(w < 0 for p in widths for w in p):
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True))]
        widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    return ops.pad(x, tuple(widths), value) if any(w != (0, 0) for w in widths) else x


def _extend(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """`x` with its own elements added at both ends of one axis."""
    length = x.shape[axis]
    if before < 0 or after < 0:
        if length + before + after < 1:
            raise ShapeError(message("pad", f"widths {(before, after)} leave nothing of an axis of {length}"))
        crop = slice(max(-before, 0), length + before + after - min(before, 0))
        before, after = max(before, 0), max(after, 0)
        if mode != "circular":
            # Edges are taken from the whole axis, even where they are cropped.
            return _extend(x, axis, before, after, mode)[(slice(None),) * axis + (crop,)]
        x = x[(slice(None),) * axis + (slice(crop.start, crop.stop - before - after),)]
        length = x.shape[axis]
    if not before and not after:
        return x
    limit = {"reflect": length - 1, "circular": length, "replicate": max(before, after) if length else 0}[mode]
    if max(before, after) > limit:
        raise ShapeError(
            message("pad", f"widths {(before, after)} in mode {mode!r} on an axis of {length}", expected=f"<= {limit}")
        )
    return ops.concat(_EXTENSIONS[mode](x, axis, before, after), axis)


def _part(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    return x[(slice(None),) * axis + (slice(start, stop if stop >= 0 else None, step),)]


def _reflect(x: Tensor, axis: int, before: int, after: int) -> list[Tensor]:
    n = x.shape[axis]
    parts = [_part(x, axis, before, 0, -1)] if before else []
    parts.append(x)
    return [*parts, _part(x, axis, n - 2, n - 2 - after, -1)] if after else parts


def _replicate(x: Tensor, axis: int, before: int, after: int) -> list[Tensor]:
    n = x.shape[axis]

    def repeated(at: int, count: int) -> Tensor:
        edge = _part(x, axis, at, at + 1)
        return ops.broadcast_to(edge, (*x.shape[:axis], count, *x.shape[axis + 1 :]))

    parts = [repeated(0, before)] if before else []
    return [*parts, x, repeated(n - 1, after)] if after else [*parts, x]


def _circular(x: Tensor, axis: int, before: int, after: int) -> list[Tensor]:
    n = x.shape[axis]
    parts = [_part(x, axis, n - before, n)] if before else []
    return [*parts, x, _part(x, axis, 0, after)] if after else [*parts, x]


_EXTENSIONS: dict[str, Callable[[Tensor, int, int, int], list[Tensor]]] = {
    "reflect": _reflect,
    "replicate": _replicate,
    "circular": _circular,
}
