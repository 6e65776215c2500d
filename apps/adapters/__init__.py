"""Low-rank adapters of linear layers (LoRA): add, train, merge, and exchange with PEFT."""

from polyhal.adapters.folder import AdapterWeights, load_adapter, read_adapter, save_adapter
from polyhal.adapters.lora import LoraLinear, adapters, add_lora, merge_lora
from polyhal.adapters.settings import LoraSettings

__all__ = [
    "AdapterWeights",
    "LoraLinear",
    "LoraSettings",
    "adapters",
    "add_lora",
    "load_adapter",
    "merge_lora",
    "read_adapter",
    "save_adapter",
]
