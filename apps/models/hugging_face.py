"""Settings of Hugging Face's `config.json` without effect on a model's numbers, and rejection of unknown ones."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from polyhal.hal.errors import message

WITHOUT_EFFECT = frozenset(
    {
        "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures", "auto_map",
        "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype",
        "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
        "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "id2label",
        "label2id", "length_penalty", "max_length", "max_window_layers", "min_length", "no_repeat_ngram_size",
        "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states",
        "output_scores", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "remove_invalid_values",
        "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens",
        "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k",
        "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p", "unk_token_id", "use_bfloat16",
        "use_cache", "is_llama_config", "transformers.js_config", "unsloth_fixed",
    }
)  # fmt: skip
"""Settings without effect on the numbers that a model computes: of tokens, generation, training and files."""


def refuse_values(name: str, data: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ValueError for a setting of `only` whose value is not listed there."""
    for setting, values in only.items():
        if setting in data and data[setting] not in values:
            expected = " or ".join(repr(v) for v in values if v is not None)
            raise ValueError(message(name, f"{setting} is {data[setting]!r}", expected=expected))


def refuse_unknown(name: str, data: Mapping[str, Any], known: Container[str]) -> None:
    """Raise ValueError with the names of settings that are neither in `known` nor in `WITHOUT_EFFECT`."""
    unknown = sorted(k for k in data if k not in known and k not in WITHOUT_EFFECT)
    if unknown:
        problem = f"the effect of {', '.join(unknown)} is unknown"
        raise ValueError(message(name, problem, fix="remove settings without effect"))
