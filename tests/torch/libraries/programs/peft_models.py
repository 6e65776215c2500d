"""peft: adapters of low rank."""

from __future__ import annotations

import warnings

import peft
import torch
import transformers as hf

from tests.torch.libraries.cases import Made, trained_case


def _lora() -> Made:
    base = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False))
    tokens = torch.randint(64, (2, 8))
    return model.eval(), {"input_ids": tokens, "labels": tokens}


trained_case("peft", "LoRA on GPT-2", _lora)
