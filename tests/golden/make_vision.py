#!/usr/bin/env python3
"""Writes the golden files for vision_test.cpp: results of image classifiers of torchvision, in float64.

usage: make_vision.py [FOLDER]        (default: the folder of this script; needs torchvision 0.15 or later)

Each file vision_<case>.safetensors holds, in float32 and in this project's layouts (images NHWC, filters OHWI):
  logits       of the forward pass in training mode
  grad/<name>  at most 16 values of the gradient of the mean loss, at even distances, for every parameter
  eval_logits  in evaluation mode, with the running statistics after that forward pass
  shape/<name> the extents of every tensor that a strict load_state_dict() expects, in PyTorch's layouts
Parameters, inputs and targets are not stored: both sides compute them as make_golden.py does."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.models import efficientnet, mobilenetv2, shufflenetv2, swin_transformer, vision_transformer

from make_golden import fill_initial, images, integers, sampled, write_safetensors


class WideBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(cout), nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        if cin != cout:
            self.convShortcut = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(x))
        shortcut = self.convShortcut(y) if hasattr(self, "convShortcut") else x
        return shortcut + self.conv2(F.relu(self.bn2(self.conv1(y))))


class WideResNet(nn.Module):
    """Blocks in <stage>.layer, as in the usual version for PyTorch; torchvision has none for small images."""

    def __init__(self, depth, widen, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        channels, blocks = [16, 16 * widen, 32 * widen, 64 * widen], (depth - 4) // 6
        for i in (1, 2, 3):
            layer = [WideBlock(channels[i] if b else channels[i - 1], channels[i], 2 if i > 1 and not b else 1)
                     for b in range(blocks)]
            setattr(self, f"block{i}", nn.ModuleDict({"layer": nn.Sequential(*layer)}))
        self.bn1, self.fc = nn.BatchNorm2d(channels[3]), nn.Linear(channels[3], classes)

    def forward(self, x):
        x = self.conv1(x)
        for block in (self.block1, self.block2, self.block3):
            x = block["layer"](x)
        return self.fc(F.relu(self.bn1(x)).mean((2, 3)))


def small_mobilenet():
    """Of depth 0.34, without its first two strides."""
    stages = [[1, 16, 1, 1], [6, 24, 1, 2], [6, 32, 2, 2], [6, 64, 2, 2], [6, 96, 2, 1], [6, 160, 2, 2], [6, 320, 1, 1]]
    model = mobilenetv2.MobileNetV2(10, width_mult=0.5, dropout=0.0, inverted_residual_setting=stages)
    model.features[0][0].stride = model.features[2].conv[1][0].stride = (1, 1)
    return model


def small_efficientnet():
    stages, last = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=0.5)
    return efficientnet.EfficientNet(stages, 0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=last)


# In these networks, with images of these sides, no value is so close to 0 or 6 that rounding to float32 moves it to the
# other side of a ReLU's kink: then gradients of deep networks with batch norm differ by percents, also in PyTorch.
CASES = {
    "mobilenet_v2": (small_mobilenet, 24),
    "wide_resnet": (lambda: WideResNet(10, 2, 10), 16),
    "vit": (lambda: vision_transformer.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=10), 32),
    "shufflenet_v2": (lambda: shufflenetv2.ShuffleNetV2([4, 8, 4], [24, 48, 96, 192, 1024], num_classes=10), 64),
    "efficientnet": (small_efficientnet, 64),
    # 13 x 13 tokens in windows of 4 x 4, then 7 x 7, then 4 x 4 in one window: padded, shifted, and not shifted.
    "swin": (lambda: swin_transformer.SwinTransformer([2, 2], 16, [2, 2, 2], [2, 4, 4], [4, 4],
                                                      stochastic_depth_prob=0.0, num_classes=10), 26),
}


def make(path, model, side):
    fill_initial(model)
    x, y = images(4, side).permute(0, 3, 1, 2), integers("target", (4,), 10)
    logits = model.train()(x)
    F.cross_entropy(logits, y).backward()
    out = {"logits": logits, "eval_logits": model.eval()(x)}
    out.update({"grad/" + name: sampled(name, p.grad) for name, p in model.named_parameters()})
    out.update({"shape/" + name: torch.tensor(t.shape, dtype=torch.int64) for name, t in model.state_dict().items()})
    write_safetensors(path, out)
    print(path)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for case, (model, side) in CASES.items():
        make(os.path.join(folder, f"vision_{case}.safetensors"), model(), side)


if __name__ == "__main__":
    main()
