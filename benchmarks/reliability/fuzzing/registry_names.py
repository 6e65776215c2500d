"""The names of all formats, without importing the formats."""

NAMES = (
    "checkpoint", "checkpoint folder", "model", "graph", "run", "torch zip", "torch legacy", "pickle", "npz", "safetensors",
    "shards", "llama2.c", "tuning database", "verdicts", "benchmark cache", "quarantine", "certificate", "kernel-call log",
    "crash journal", "program cache", "tokenizer (characters)", "tokenizer (BPE)", "configuration", "metrics",
    "report of devices", "GGUF", "folder of a language model",
)  # fmt: skip
