"""Stored tensors of a model: their size is checked before their bytes are read, inside of the file or next to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, numpy_helper

from polyhal.hal.errors import CorruptFileError, message
from polyhal.onnx.element_types import bits_of, name_of, numpy_dtype


@dataclass(frozen=True, slots=True)
class Initializer:
    """An initializer or a constant, whose elements are read when they are needed."""

    proto: TensorProto
    folder: Path | None
    """Folder of the model's file, which holds external data; None for models without a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return tuple(self.proto.dims)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype of the elements. Raises CorruptFileError for an unknown element type."""
        dtype = numpy_dtype(self.proto.data_type)
        if dtype is None:
            raise self._corrupt(f"has the element type {name_of(self.proto.data_type)}", "an element type of ONNX")
        return dtype

    def read(self) -> np.ndarray:
        """Return the elements. Raises CorruptFileError if they are incomplete or outside of the model's folder."""
        dtype = self.dtype
        if any(d < 0 for d in self.shape):
            raise self._corrupt(f"has the shape {list(self.shape)}", "lengths of 0 or more")
        if self.proto.data_location == TensorProto.EXTERNAL:
            return self._external(dtype)
        if self.proto.HasField("raw_data"):
            self._expect(len(self.proto.raw_data), "bytes", self._nbytes)
        try:
            array: np.ndarray = numpy_helper.to_array(self.proto)
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise self._corrupt(f"does not fit its shape {list(self.shape)}: {error}", "as many elements") from error
        return array

    @property
    def _nbytes(self) -> int:
        return -(-self.size * bits_of(self.proto.data_type) // 8)

    def _external(self, dtype: np.dtype) -> np.ndarray:
        entries = {e.key: e.value for e in self.proto.external_data}
        path = self._path_of(entries.get("location", ""))
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", self._nbytes))
        except ValueError as error:
            raise self._corrupt(f"has the offset and length {entries}", "integers") from error
        self._expect(length, "bytes", self._nbytes)
        total = path.stat().st_size
        if offset < 0 or offset + length > total:
            raise self._corrupt(f"has bytes {offset} to {offset + length} of {path}", f"at most {total} bytes")
        if not length:
            return np.empty(self.shape, dtype)
        raw = np.memmap(path, np.uint8, "r", offset, (length,))
        if bits_of(self.proto.data_type) == 8 * dtype.itemsize:
            return raw.view(dtype.newbyteorder("<")).reshape(self.shape)
        packed = TensorProto(data_type=self.proto.data_type, dims=self.shape, raw_data=raw.tobytes())
        return np.asarray(numpy_helper.to_array(packed))

    def _path_of(self, location: str) -> Path:
        """Return the file of external data, which must be a regular file in the folder of the model or below it."""
        where = "a relative path of a file in the model's folder, without links to other folders"
        if self.folder is None:
            raise self._corrupt(f"has external data in {location!r}, and the model was not read from a file", where)
        path = self.folder / location
        inside = path.resolve().is_relative_to(self.folder.resolve())
        if not location or Path(location).is_absolute() or ".." in Path(location).parts or not inside:
            raise self._corrupt(f"has external data in {location!r}", where)
        if not path.is_file():
            raise self._corrupt(f"has external data in {location!r}, which is not a file in {self.folder}", where)
        return path

    def _expect(self, found: int, unit: str, expected: int) -> None:
        if found != expected:
            raise self._corrupt(
                f"has {found} {unit}", f"{expected} for {name_of(self.proto.data_type)}{list(self.shape)}"
            )

    def _corrupt(self, problem: str, expected: str) -> CorruptFileError:
        return CorruptFileError(
            message(
                "onnx", f"the tensor {self.proto.name!r} {problem}", expected=expected, fix="export the model again"
            )
        )
