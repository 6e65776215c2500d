"""Fine-tuning of language models with low-rank adapters: records, rows of tokens, and training steps."""

from polyhal.finetune.options import TuneOptions
from polyhal.finetune.records import RECORD_FORMS, Example, RecordError, encode_record, read_records
from polyhal.finetune.rows import IGNORED, TokenRows, arrange
from polyhal.finetune.tuner import Tuner

__all__ = [
    "IGNORED",
    "RECORD_FORMS",
    "Example",
    "RecordError",
    "TokenRows",
    "TuneOptions",
    "Tuner",
    "arrange",
    "encode_record",
    "read_records",
]
