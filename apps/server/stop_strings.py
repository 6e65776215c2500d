"""Stop strings of streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes a text on, piece by piece, up to the first stop string. It holds back text that may be the start of one.

    The first stop string is the one that is complete first; the longest of several that end at the same place.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Add a piece, and return the text that is certain to be part of the answer."""
        if self.stopped:
            return ""
        held = self._held + text
        ends = [(begin + len(s), begin) for s in self._stops if (begin := held.find(s)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return held[: min(ends)[1]]
        longest = min(self._longest - 1, len(held))
        keep = next((k for k in range(longest, 0, -1) if any(s.startswith(held[-k:]) for s in self._stops)), 0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held
