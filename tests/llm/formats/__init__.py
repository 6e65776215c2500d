"""Formats of language models: each architecture in each type of files, compared with the package `gguf` and llama.cpp."""
