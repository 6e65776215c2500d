"""Members of a zip archive, read with bounds on size and with their checksums.

An archive is opened for each read, and nothing is ever extracted to the disk, so that names of members cannot lead anywhere.
"""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from pathlib import Path

from polyhal.hal.errors import CorruptFileError, message

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LARGEST_RATIO = 1032
"""The best that deflate can do. A member that claims more is a zip bomb."""


class Archive:
    """The members of a zip archive by name."""

    def __init__(self, path: Path) -> None:
        """Read the directory at the end of the file. Raises CorruptFileError."""
        self.path = path
        try:
            with zipfile.ZipFile(path) as opened:
                self.members = {info.filename: info for info in opened.infolist()}
                held = sum(info.compress_size for info in self.members.values())
        # An offset before the beginning of the file is an OSError of Python's reader.
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, OSError, struct.error) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            raise CorruptFileError(
                message("load", f"{path} is damaged: {error}", expected="a complete zip file")
            ) from error
        if held > path.stat().st_size:
            raise CorruptFileError(message("load", f"{path} is damaged: its members overlap"))

    def size(self, name: str) -> int:
        """Bytes of a member, as the directory says. Raises CorruptFileError."""
        return self._member(name).file_size

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Read a member, or its first `limit` bytes without a check. Raises CorruptFileError."""
        info = self._member(name)
        if limit is not None and limit >= info.file_size:
            limit = None
        stored = info.compress_type == zipfile.ZIP_STORED
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER.size)
            if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
                raise self._damaged(name, "it has no header")
            _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
            file.seek(name_length + extra_length, 1)
            data = file.read(info.compress_size if limit is None or not stored else limit)
        if not stored:
            wanted = info.file_size if limit is None else limit
            try:
                data = zlib.decompressobj(-15).decompress(data, max(wanted, 1))
            except zlib.error as error:
                raise self._damaged(name, str(error)) from error
        if limit is None and (len(data) != info.file_size or zlib.crc32(data) != info.CRC):
            raise self._damaged(name, "its checksum differs" if len(data) == info.file_size else "it is cut off")
        return data

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self.members.get(name)
        if info is None:
            raise CorruptFileError(message("load", f"{self.path} lacks {name!r}"))
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._damaged(name, "it is encrypted or compressed in an unknown way")
        held = self.path.stat().st_size
        if not 0 <= info.header_offset < held:
            raise self._damaged(name, "it begins outside of the file")
        if info.compress_size > held or info.file_size > _LARGEST_RATIO * (info.compress_size + 1):
            raise self._damaged(name, f"it claims {info.file_size} bytes, more than the file can hold")
        return info

    def _damaged(self, name: str, problem: str) -> CorruptFileError:
        return CorruptFileError(message("load", f"{name!r} in {self.path} is damaged: {problem}"))
