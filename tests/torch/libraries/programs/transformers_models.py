"""Hugging Face transformers: fourteen architectures, trained, also with masks and checkpoints, and generating."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from tests.torch.libraries.cases import Made, computed_case, trained_case

_WORDS = 64
_TEXT = {
    "vocab_size": _WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_IMAGE = {"image_size": 16, "patch_size": 4}


def _tokens(length: int = 9) -> torch.Tensor:
    return torch.randint(3, _WORDS, (2, length), generator=torch.Generator().manual_seed(2))


def _gpt2() -> Any:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=_WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    )


def _t5() -> Any:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=_WORDS,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def _whisper() -> Any:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=_WORDS,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=8,
            max_source_positions=16,
            max_target_positions=32,
            decoder_start_token_id=1,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


CAUSAL: dict[str, Callable[[], Any]] = {
    "GPT-2": _gpt2,
    "Llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_GROUPED)),
    "Qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**_GROUPED, head_dim=8)),
    "Mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**_GROUPED, num_local_experts=4, num_experts_per_tok=2)),
    "Mamba": lambda: hf.MambaForCausalLM(
        hf.MambaConfig(
            vocab_size=_WORDS, hidden_size=32, state_size=8, num_hidden_layers=2, bos_token_id=1, eos_token_id=2
        )
    ),
}


def _gemma3() -> Any:
    layers = ["sliding_attention", "full_attention"]
    return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**_GROUPED, head_dim=8, sliding_window=4, layer_types=layers))


def _deepseek() -> Any:
    return hf.DeepseekV3ForCausalLM(
        hf.DeepseekV3Config(
            **_TEXT,
            num_key_value_heads=4,
            moe_intermediate_size=24,
            n_shared_experts=1,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            kv_lora_rank=8,
            q_lora_rank=12,
            qk_rope_head_dim=4,
            qk_nope_head_dim=4,
            v_head_dim=8,
        )
    )


def _bart() -> Any:
    return hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=_WORDS,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
            decoder_start_token_id=2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


_FURTHER: dict[str, Callable[[], Any]] = {
    "Gemma 3": _gemma3,
    "Mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**_GROUPED, sliding_window=4)),
    "DeepSeek V3": _deepseek,
}


def _mask() -> torch.Tensor:
    """Return a mask of tokens that hides the end of the second sequence."""
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    return mask


def _language(make: Callable[[], Any]) -> Callable[[], Made]:
    return lambda: (make().eval(), {"input_ids": _tokens(), "labels": _tokens()})


def _masked(make: Callable[[], Any], targets: int = 9) -> Callable[[], Made]:
    inputs = {"input_ids": _tokens(), "attention_mask": _mask(), "labels": _tokens(targets)}
    return lambda: (make().eval(), inputs)


def _in_checkpoints(make: Callable[[], Any]) -> Callable[[], Made]:
    """Return a model in training mode, whose layers compute their values again in the backward pass."""

    def made() -> Made:
        model, inputs = _masked(make)()
        model.train().gradient_checkpointing_enable()
        return model, inputs

    return made


def _bert() -> Made:
    return hf.BertForMaskedLM(hf.BertConfig(**_TEXT)).eval(), {"input_ids": _tokens(), "attention_mask": _mask()}


def _seq2seq() -> Made:
    return _t5().eval(), {"input_ids": _tokens(), "labels": _tokens(5)}


def _speech() -> Made:
    return _whisper().eval(), {"input_features": torch.randn(2, 8, 32), "labels": _tokens(5)}


def _detection() -> Made:
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = hf.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=5,
        dropout=0.0,
    )
    mask = torch.ones(2, 32, 32, dtype=torch.int64)
    mask[1, :, 20:] = 0
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.2], [0.3, 0.3, 0.2, 0.4]])
    labels = [
        {"class_labels": torch.tensor([1]), "boxes": boxes[:1]},
        {"class_labels": torch.tensor([1, 2]), "boxes": boxes},
    ]
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32), "pixel_mask": mask, "labels": labels}
    return hf.DetrForObjectDetection(config).train(), inputs


def _detection_without_labels() -> Made:
    """Without labels nothing is matched on the CPU: Python reads only whether values are finite."""
    model, inputs = _detection()
    return model, {name: x for name, x in inputs.items() if name != "labels"}


def _vit() -> Made:
    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3, **_IMAGE
    )
    return hf.ViTForImageClassification(config).eval(), {"pixel_values": torch.randn(2, 3, 16, 16)}


def _clip() -> Made:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = hf.CLIPConfig(
        text_config={
            **sizes,
            "vocab_size": _WORDS,
            "max_position_embeddings": 16,
            "eos_token_id": 2,
            "bos_token_id": 1,
        },
        vision_config={**sizes, **_IMAGE},
        projection_dim=16,
    )
    inputs = {"input_ids": _tokens(), "pixel_values": torch.randn(2, 3, 16, 16), "return_loss": True}
    return hf.CLIPModel(config).eval(), inputs


for _name, _make in (CAUSAL | _FURTHER).items():
    trained_case("transformers", _name, _language(_make))
for _name, _whole in {
    "BERT": _bert,
    "T5": _seq2seq,
    "Whisper": _speech,
    "ViT": _vit,
    "CLIP": _clip,
    "DETR": _detection,
    "DETR, no labels": _detection_without_labels,
    "GPT-2, masked": _masked(_gpt2),
    "Llama, masked": _masked(CAUSAL["Llama"]),
    "Gemma 3, masked": _masked(_gemma3),
    "T5, masked": _masked(_t5, 5),
    "BART, masked": _masked(_bart, 5),
    "Llama, checkpoints": _in_checkpoints(CAUSAL["Llama"]),
    "DeepSeek V3, checkpoints": _in_checkpoints(_deepseek),
}.items():
    trained_case("transformers", _name, _whole)


def _generate(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    """Generate tokens with the cache of keys and values."""
    return model.generate(**inputs, max_new_tokens=8, do_sample=False)


def _generating(name: str, make: Callable[[], Any], inputs: Callable[[], dict[str, torch.Tensor]]) -> None:
    computed_case("transformers", f"{name}, generate", lambda: (make().eval(), inputs()), _generate, steps=3)


for _name, _make in CAUSAL.items():
    _generating(_name, _make, lambda: {"input_ids": _tokens(5)})
_generating("T5", _t5, lambda: {"input_ids": _tokens(5)})
_generating("Whisper", _whisper, lambda: {"input_features": torch.randn(1, 8, 32)})
