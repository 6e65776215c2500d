"""torchaudio: spectrograms, and a conformer with its loss."""

from __future__ import annotations

import torch
import torchaudio
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


class _Heard(nn.Module):
    """A conformer on spectrograms of waves."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrogram = torchaudio.transforms.MelSpectrogram(8000, n_fft=64, hop_length=32, n_mels=8)
        self.conformer = torchaudio.models.Conformer(8, 2, 16, 1, depthwise_conv_kernel_size=3, use_group_norm=True)

    def forward(self, waves: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return features of frames."""
        return self.conformer((1 + self.spectrogram(waves)).log().transpose(1, 2), lengths)[0]


def _heard() -> Made:
    return _Heard(), {"waves": torch.randn(2, 256), "lengths": torch.tensor([9, 9])}


def _wav2vec() -> Made:
    model = torchaudio.models.wav2vec2_model(
        extractor_mode="group_norm",
        extractor_conv_layer_config=[(8, 10, 5), (8, 3, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=16,
        encoder_projection_dropout=0.0,
        encoder_pos_conv_kernel=4,
        encoder_pos_conv_groups=2,
        encoder_num_layers=1,
        encoder_num_heads=2,
        encoder_attention_dropout=0.0,
        encoder_ff_interm_features=32,
        encoder_ff_interm_dropout=0.0,
        encoder_dropout=0.0,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=5,
    )
    return model.eval(), {"waveforms": torch.randn(2, 200)}


trained_case("torchaudio", "Conformer on spectrograms", _heard)
trained_case("torchaudio", "wav2vec 2", _wav2vec)
