"""Training of language models: settings, data, the loop, and the folder of a run."""

from polyhal.training.checkpoint import TrainedModel, load_model
from polyhal.training.corpus import Corpus, CorpusError
from polyhal.training.folder import RunFolder, RunFolderError
from polyhal.training.metrics import Metrics, MetricsRow
from polyhal.training.options import OptionError, TrainOptions
from polyhal.training.preparation import resume, start
from polyhal.training.ranks import Ranks
from polyhal.training.schedule import share_of_peak
from polyhal.training.session import RunObserver, Session
from polyhal.training.trainer import Trainer

__all__ = [
    "Corpus",
    "CorpusError",
    "Metrics",
    "MetricsRow",
    "OptionError",
    "Ranks",
    "RunFolder",
    "RunFolderError",
    "RunObserver",
    "Session",
    "TrainOptions",
    "TrainedModel",
    "Trainer",
    "load_model",
    "resume",
    "share_of_peak",
    "start",
]
