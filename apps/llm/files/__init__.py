"""Files of language models: folders of Hugging Face's form, and GGUF."""

from polyhal.llm.files.gguf_file import GgufFile, GgufTensor
from polyhal.llm.files.model_files import ModelFiles, StoredWeight, open_model

__all__ = ["GgufFile", "GgufTensor", "ModelFiles", "StoredWeight", "open_model"]
