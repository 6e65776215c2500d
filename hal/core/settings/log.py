"""Logging: one logger per topic under `polyhal`, for programs that use `logging`, and for people by POLYHAL_LOG.

POLYHAL_LOG=kernels,memory prints the messages of two topics to standard error while the program runs, and POLYHAL_LOG=all
prints all messages. Programs configure the loggers `polyhal.TOPIC` as any other ones; without the variable the library sets no
handler.
"""

from __future__ import annotations

import logging
import warnings

from polyhal.hal.core.settings import env
from polyhal.hal.errors import SettingError

TOPICS = {
    "discovery": "plug-ins that are registered or refused, and devices that are opened",
    "dispatch": "how each kind of call runs: natively, composed, on the host, and why",
    "capture": "steps that are recorded, confirmed, evicted or given up",
    "passes": "graph passes: nodes before and after, and their time",
    "kernels": "programs that are compiled or loaded, and their time",
    "memory": "blocks that pools allocate, release and refuse",
    "collectives": "collectives of eager calls, with their bytes",
}
"""The topics, each with the events that it contains."""
_FORMAT = "%(relativeCreated)9.1f ms  %(name)s: %(message)s"
"""The time is counted from the import of `logging`, a few milliseconds after the start of the program."""


def logger(topic: str) -> logging.Logger:
    """Return the logger of a topic. Events are messages of level DEBUG if they occur for every shape or block, else INFO."""
    return _LOGGERS[topic]


def configure(topics: tuple[str, ...]) -> None:
    """Print all messages of the topics to standard error."""
    if not topics:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    for topic in topics:
        _LOGGERS[topic].setLevel(logging.DEBUG)
        _LOGGERS[topic].addHandler(handler)
        _LOGGERS[topic].propagate = False


def _requested() -> tuple[str, ...]:
    """Return the topics of POLYHAL_LOG. An unknown one is a warning: it must not end the import of a program."""
    try:
        return env.log(tuple(TOPICS))
    except SettingError as error:
        warnings.warn(str(error), stacklevel=2)
        return ()


_LOGGERS = {topic: logging.getLogger(f"polyhal.{topic}") for topic in TOPICS}
logging.getLogger("polyhal").addHandler(logging.NullHandler())
configure(_requested())
