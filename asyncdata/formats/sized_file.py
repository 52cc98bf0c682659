"""SizedFile: a file object of known size, for packages that seek in what they read."""

from __future__ import annotations

import io

__all__ = ("SizedFile",)


class SizedFile(io.RawIOBase):
    """A file object that knows its size and where it is; a subclass reads from there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise ValueError(f"there is no byte {at}")
        self.at = at
        return at
