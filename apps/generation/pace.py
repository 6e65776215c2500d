"""How many tokens are proposed for a sequence."""

from __future__ import annotations

from dataclasses import dataclass

WIDTHS = (0, 1, 3, 7)
"""Numbers of proposals per sequence that steps check, few because each is a captured graph of its own."""
_LONGEST_PAUSE = 256
_SILENT = 8
"""Steps without a proposal after which proposals pause, so that steps need not wait for the tokens of earlier ones."""


@dataclass(slots=True)
class ProposalPace:
    """Number of tokens to propose for a sequence, which follows the number that was kept.

    It doubles if all are kept and halves if none is. Below one, proposals pause for a number of steps that doubles each time,
    so that the cost of useless proposals is a share of the text that falls to 2 steps of 256.
    """

    length: int = 3
    paused: int = 0
    pause: int = 8
    silent: int = 0

    @property
    def proposes(self) -> bool:
        """True if tokens are to be proposed in the next step."""
        return not self.paused

    def skip(self) -> None:
        """Note a step in which no tokens are to be proposed."""
        self.paused = max(self.paused - 1, 0)

    def record(self, proposed: int, kept: int) -> None:
        """Note how many tokens of a step were proposed and kept."""
        if not proposed:
            self.silent += 1
            if self.silent >= _SILENT:
                self.silent, self.paused = 0, _SILENT
            return
        self.silent = 0
        if kept == proposed:
            self.length, self.pause = min(2 * self.length, WIDTHS[-1]), 8
        elif not kept:
            self.length //= 2
            if not self.length:
                self.length, self.paused = 1, self.pause
                self.pause = min(2 * self.pause, _LONGEST_PAUSE)
