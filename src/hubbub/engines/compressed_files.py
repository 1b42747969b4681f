"""Compressed files: their bytes as a stream, in little memory, and an error if they are cut short.

The size of what comes out has no limit, because one person's long row must not make a query fail: lines and
fields are cut by those who read them. A file that is damaged or cut short fails as a whole, whatever its
rows.
"""

import io
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import Any

from hubbub.engines.file_endings import find_compression
from hubbub.errors import InvalidInput

__all__ = ["open_bytes"]

_GZIP_WINDOW = 31
"""zlib's code for a gzip header and the largest window."""
_OUTPUT_BYTES = 1 << 20


def open_bytes(path: str | Path) -> io.BufferedReader:
    """Open a file to read its bytes, decompressed. Damaged files raise OSError where they are damaged."""
    compression = find_compression(path)
    file = Path(path).open("rb")  # noqa: SIM115 - the reader closes it
    if not compression:
        return file
    try:
        reader = _GzipReader(file) if compression == "gzip" else _ZstdReader(file)
    except BaseException:
        file.close()
        raise
    return io.BufferedReader(reader, _OUTPUT_BYTES)


class _Reader(io.RawIOBase):
    """The frames of a file, decompressed one after the other."""

    _input_bytes: int
    """Bytes that are read at once."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._frame: Any = None
        """The frame that has begun, if any."""
        self._input = b""
        """Bytes that were read and not yet decompressed."""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            self._input = self._input or self._file.read(self._input_bytes)
            is_end = not self._input
            if is_end and self._frame is None:
                return 0
            self._output = memoryview(self._decompress())  # also without input: some output may be left
            if is_end and not self._output and self._frame is not None:
                raise OSError("the file is cut short")
        size = min(len(buffer), len(self._output))
        buffer[:size], self._output = self._output[:size], self._output[size:]
        return size

    def _decompress(self) -> bytes:
        frame = self._frame = self._frame or self._make_frame()
        try:
            output = self._step(frame, self._input)
        except Exception as problem:  # each library has errors of its own
            raise OSError("the file is damaged") from problem
        self._input = frame.unconsumed_tail
        if frame.eof:  # another may follow
            self._frame, self._input = None, frame.unused_data
        return output

    @abstractmethod
    def _make_frame(self) -> Any:
        """A decompressor of one frame."""

    @abstractmethod
    def _step(self, frame: Any, data: bytes) -> bytes:
        """Some of what the data becomes."""


class _GzipReader(_Reader):
    _input_bytes = 1 << 16

    def _make_frame(self) -> Any:
        return zlib.decompressobj(_GZIP_WINDOW)

    def _step(self, frame: Any, data: bytes) -> bytes:
        return bytes(frame.decompress(data, _OUTPUT_BYTES))  # the rest stays in its unconsumed_tail


class _ZstdReader(_Reader):
    _input_bytes = 1 << 11  # each byte may become 32,768, and the library has no limit

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(file)
        try:
            import zstandard
        except ImportError:
            raise InvalidInput(
                "reading zstd files needs a library that is not installed",
                why="Python itself cannot decompress them",
                fix="pip install zstandard, or decompress the file with: unzstd FILE",
            ) from None
        self._library = zstandard.ZstdDecompressor()

    def _make_frame(self) -> Any:
        return self._library.decompressobj()

    def _step(self, frame: Any, data: bytes) -> bytes:
        return bytes(frame.decompress(data))
