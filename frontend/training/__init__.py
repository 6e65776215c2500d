"""Training language models: settings, data, the loop, and the folder in which a run is kept."""

from polyhal.training.checkpoint import LanguageModel, load_model
from polyhal.training.corpus import Corpus, CorpusError
from polyhal.training.folder import RunFolder, RunFolderError
from polyhal.training.metrics import Metrics, Row
from polyhal.training.options import OptionError, TrainOptions
from polyhal.training.preparation import resume, start
from polyhal.training.session import Observer, Session
from polyhal.training.trainer import Trainer

__all__ = [
    "Corpus", "CorpusError", "LanguageModel", "Metrics", "Observer", "OptionError", "Row", "RunFolder",
    "RunFolderError", "Session", "TrainOptions", "Trainer", "load_model", "resume", "start",
]  # fmt: skip
