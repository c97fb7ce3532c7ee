"""The output of a running point, shown as it grows."""

from pathlib import Path

CHUNK_BYTES = 1 << 20


class Tail:
    """Whole lines that come to a file after this object was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def lines(self) -> list[str]:
        """What came since the last call; a line that has not ended yet waits for its end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(CHUNK_BYTES)
        except OSError:  # not there yet
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]
