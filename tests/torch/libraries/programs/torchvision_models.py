"""torchvision: classifiers and a detector."""

from __future__ import annotations

import torch
import torchvision

from tests.torch.libraries.cases import Made, sgd, trained_case


def _images(size: int) -> torch.Tensor:
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(2))


def _classifier(name: str, size: int, **options: object) -> None:
    def make() -> Made:
        model = torchvision.models.get_model(name, num_classes=5, **options)
        if name == "resnet18":  # statistics of 16 numbers make gradients that float32 has no digit of
            model.eval()
        return model, {"x": _images(size)}

    trained_case("torchvision", name, make, optimizer=sgd)


_classifier("resnet18", 64)
_classifier("convnext_tiny", 32, stochastic_depth_prob=0.0)
_classifier("mobilenet_v3_small", 64, dropout=0.0)
trained_case(
    "torchvision",
    "vit",
    lambda: (
        torchvision.models.VisionTransformer(
            image_size=16, patch_size=4, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=5
        ),
        {"x": _images(16)},
    ),
)


def _detector() -> Made:
    """With frozen statistics, as detectors are fine-tuned. It takes boxes at random from the proposals: here it takes all."""
    norm = torchvision.ops.misc.FrozenBatchNorm2d
    backbone = torchvision.models.mobilenet_v2(weights=None, norm_layer=norm).features[:7]
    backbone.out_channels = 32
    model = torchvision.models.detection.FasterRCNN(
        backbone,
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_anchor_generator=torchvision.models.detection.anchor_utils.AnchorGenerator(((16, 32),), ((1.0,),)),
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 7, 2),
        rpn_batch_size_per_image=10**6,
        box_batch_size_per_image=10**6,
        rpn_post_nms_top_n_train=50,
        box_fg_iou_thresh=0.3,
        box_bg_iou_thresh=0.3,
    )
    targets = [
        {"boxes": torch.tensor([[4.0, 4.0, 40.0, 50.0]]), "labels": torch.tensor([1])},
        {"boxes": torch.tensor([[10.0, 20.0, 60.0, 60.0]]), "labels": torch.tensor([2])},
    ]
    return model, {"images": list(_images(64)[:2]), "targets": targets}


trained_case("torchvision", "faster R-CNN", _detector)
