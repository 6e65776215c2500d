"""Members of a zip archive, read with limits on their size and verified checksums.

Nothing is extracted to disk, so that names of members cannot escape from a folder.
"""

from __future__ import annotations

import errno
import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterator

from polyhal.hal.errors import CorruptFileError, message
from polyhal.serialize.readers.opened import OpenedFile

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LARGEST_RATIO = 1032
"""Maximum compression ratio of deflate. A member with a larger one is a zip bomb."""
_BLOCK = 1 << 20
"""Maximum number of bytes that one call decompresses."""


class Archive:
    """The members of a zip archive by name."""

    def __init__(self, file: OpenedFile) -> None:
        """Read the directory at the end of the file. Raises CorruptFileError."""
        self.file = file
        self.path = path = file.path
        self._checked: set[str] = set()
        """Members whose checksums have been verified."""
        try:
            with zipfile.ZipFile(file.stream()) as opened:
                self.members = {info.filename: info for info in opened.infolist()}
                held = sum(info.compress_size for info in self.members.values())
        # Python's reader raises OSError for an offset before the beginning of the file.
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, OSError, struct.error) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            raise CorruptFileError(
                message("load", f"{path} is damaged: {error}", expected="a complete zip file")
            ) from error
        if held > file.size:
            raise CorruptFileError(message("load", f"{path} is damaged: its members overlap"))

    def size(self, name: str) -> int:
        """Return the bytes of a member according to the directory. Raises CorruptFileError."""
        return self._member(name).file_size

    def read(self, name: str, limit: int | None = None) -> bytes | bytearray:
        """Read a member, or its first `limit` bytes without verification. Raises CorruptFileError."""
        size = self._member(name).file_size
        if limit is None or limit >= size:
            return self.read_part(name, 0, size)
        return b"".join(itertools.islice(self._blocks(name, limit), 1))[:limit]

    def read_part(self, name: str, begin: int, nbytes: int) -> bytearray:
        """Read a range of bytes of a member, in blocks: memory for the whole member is not needed. Raises CorruptFileError.

        The first read of a member decompresses all of its bytes and verifies its checksum.
        """
        info, checksum, position = self._member(name), 0, 0
        found = bytearray()
        for block in self._blocks(name, _BLOCK):
            first, last = max(begin - position, 0), min(begin + nbytes - position, len(block))
            if first < last:
                found += block[first:last]
            position += len(block)
            if name not in self._checked:
                checksum = zlib.crc32(block, checksum)
            elif position >= begin + nbytes:
                return found
        if position != info.file_size or (name not in self._checked and checksum != info.CRC):
            raise self._damaged(name, "its checksum differs" if position == info.file_size else "it is cut off")
        self._checked.add(name)
        return found

    def _blocks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a member in blocks of at most `size`. Raises CorruptFileError."""
        info = self._member(name)
        header = self.file.read(info.header_offset, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise self._damaged(name, "it has no header")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        at = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        end = min(at + info.compress_size, self.file.size)
        inflater = None if info.compress_type == zipfile.ZIP_STORED else zlib.decompressobj(-15)
        left, waiting = info.file_size, b""
        while left > 0:
            data = waiting or self.file.read(at, min(size, end - at))
            at += 0 if waiting else len(data)
            if inflater is None:
                block = data[:left]
            else:
                try:
                    block = inflater.decompress(data, min(size, left))
                except zlib.error as error:
                    raise self._damaged(name, str(error)) from error
                waiting = inflater.unconsumed_tail
            if not block and (not data or (inflater is not None and inflater.eof)):
                return
            left -= len(block)
            if block:
                yield block

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self.members.get(name)
        if info is None:
            raise CorruptFileError(message("load", f"{self.path} lacks {name!r}"))
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._damaged(name, "it is encrypted or compressed in an unknown way")
        held = self.file.size
        if not 0 <= info.header_offset < held:
            raise self._damaged(name, "it begins outside of the file")
        if info.compress_size > held or info.file_size > _LARGEST_RATIO * (info.compress_size + 1):
            raise self._damaged(name, f"it claims {info.file_size} bytes, more than the file can hold")
        return info

    def _damaged(self, name: str, problem: str) -> CorruptFileError:
        return CorruptFileError(message("load", f"{name!r} in {self.path} is damaged: {problem}"))
