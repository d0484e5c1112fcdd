"""The cases of `bench models` (tools/bench/model_cases.cpp) for PyTorch: networks, random data and optimisers of the same
kinds and sizes. Optimisers are fused, which is the fastest form. Images have their channels last."""
import dataclasses
import typing

import torch
from torch.nn import functional as F

from torch_networks import boxes, images, rows, texts


@dataclasses.dataclass
class Case:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    items: int  # images, tokens or rows of a step
    loss: typing.Callable  # of the model, or of what torch.compile makes of it


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4, fused=True)


def adam(model):
    return torch.optim.Adam(model.parameters(), 1e-3, fused=True)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.01, fused=True)


def image_model(make, device):
    return make().to(device, memory_format=torch.channels_last)


def random_images(batch, side, device):
    return torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)


def classifier(make, side, classes):
    def of(batch, device):
        model, x = image_model(make, device), random_images(batch, side, device)
        y = torch.randint(classes, (batch,), device=device)
        return Case(model, sgd(model), batch, lambda network: F.cross_entropy(network(x), y))
    return of


def detector(make, anchors):
    def of(batch, device):
        model, x = image_model(make, device), random_images(batch, 416, device)
        place, sides = 0.25 + 0.5 * torch.rand(batch, 10, 2), 0.05 + 0.4 * torch.rand(batch, 10, 2)
        truth = torch.cat([torch.randint(80, (batch, 10, 1)).float(), place, sides], -1)
        box_loss = boxes.BoxLoss(anchors, truth, 80, device)
        return Case(model, sgd(model, 1e-4), batch, lambda network: box_loss(network(x)) / batch)
    return of


def unet(batch, device):
    model, x = image_model(images.UNet, device), random_images(batch, 128, device)
    y = torch.randint(5, (batch, 128, 128), device=device)
    return Case(model, adam(model), batch, lambda network: F.cross_entropy(network(x), y))


def language_model(make, symbols, length):
    def of(batch, device):
        model = make().to(device)
        x, y = (torch.randint(symbols, (batch, length), device=device) for _ in range(2))
        router = model.router_loss if hasattr(model, "router_loss") else lambda: 0.0
        loss = lambda network: F.cross_entropy(network(x).flatten(0, 1), y.flatten()) + router()
        return Case(model, adamw(model), x.numel(), loss)
    return of


def masked(tokens, share=0.15):
    """Some of the tokens as targets."""
    return torch.where(torch.rand(tokens.shape, device=tokens.device) < share, tokens, -100)


def length_mask(batch, length, device):
    """1 for tokens that count: from half to all of a sequence."""
    lengths = torch.randint(length // 2, length + 1, (batch, 1), device=device)
    return (torch.arange(length, device=device) < lengths).long()


def electra(batch, device):
    model, x = texts.Electra().to(device), torch.randint(30522, (batch, 128), device=device)
    y = masked(torch.randint(30522, x.shape, device=device))
    return Case(model, adamw(model), x.numel(), lambda network: network(x, y))


def bert(pooled):
    def of(batch, device):
        model, x = texts.Bert(pooled).to(device), torch.randint(30522, (batch, 128), device=device)
        mask = length_mask(batch, 128, device) if pooled else None
        y = torch.randint(2, (batch,), device=device) if pooled else masked(torch.randint(30522, x.shape, device=device))
        return Case(model, adamw(model), x.numel(), lambda network: network(x, mask, y))
    return of


def t5(batch, device):
    model, mask = texts.T5().to(device), length_mask(batch, 128, device)
    x, start, y = (torch.randint(32128, (batch, 128), device=device) for _ in range(3))
    return Case(model, adamw(model), x.numel(), lambda network: network(x, mask, start, y))


def click_model(make):
    def of(batch, device):
        model, numbers = make(13, [1000] * 26).to(device), torch.randn(batch, 13, device=device)
        categories = torch.randint(1000, (batch, 26), device=device)
        y = torch.randint(2, (batch,), device=device).float()
        loss = lambda network: F.binary_cross_entropy_with_logits(network(numbers, categories), y)
        return Case(model, adam(model), batch, loss)
    return of


def neumf(batch, device):
    model = rows.NeuMf(0, [6040, 3706], factors=16, layers=(64, 32, 16)).to(device)
    candidates = torch.stack([torch.randint(n, (batch, 5), device=device) for n in (6040, 3706)], -1)
    y = torch.tensor([1.0, 0, 0, 0, 0], device=device).expand(batch, 5)
    loss = lambda network: F.binary_cross_entropy_with_logits(network(None, candidates), y)
    return Case(model, adam(model), batch, loss)


def of_torchvision(name):
    return lambda: getattr(__import__("torchvision").models, name)()


def clicks(make, **widths):
    return lambda features, symbols: make(features, symbols, **widths)


# The batch, and what makes the case of a batch and a device.
CASES = {
    "resnet20": (128, classifier(lambda: images.small_resnet((16, 32, 64), (3, 3, 3)), 32, 10)),
    "resnet18cifar": (128, classifier(lambda: images.small_resnet((64, 128, 256, 512), (2, 2, 2, 2)), 32, 10)),
    "wideresnet28": (16, classifier(images.wide_resnet28, 32, 10)),
    "resnet50": (16, classifier(images.resnet50, 224, 1000)),
    "wideresnet50": (8, classifier(of_torchvision("wide_resnet50_2"), 224, 1000)),
    "vgg19cifar": (128, classifier(images.small_vgg19, 32, 10)),
    "mobilenetv2": (16, classifier(of_torchvision("mobilenet_v2"), 224, 1000)),
    "efficientnetb0": (16, classifier(of_torchvision("efficientnet_b0"), 224, 1000)),
    "shufflenetv2": (16, classifier(of_torchvision("shufflenet_v2_x1_0"), 224, 1000)),
    "vittiny": (16, classifier(images.vit_tiny, 224, 1000)),
    "vitb16": (8, classifier(of_torchvision("vit_b_16"), 224, 1000)),
    "swint": (16, classifier(of_torchvision("swin_t"), 224, 1000)),
    "yolov3": (4, detector(boxes.YoloV3, boxes.ANCHORS)),
    "yolov3tiny": (8, detector(boxes.YoloV3Tiny, boxes.TINY_ANCHORS)),
    "unet": (8, unet),
    "chargpt": (16, language_model(lambda: texts.Gpt2(6, 6, 384, 256), 256, 256)),
    "chargptexperts": (16, language_model(lambda: texts.Gpt2(6, 6, 384, 256, experts=True), 256, 256)),
    "gpt2": (4, language_model(texts.Gpt2, 50257, 256)),
    "lstm": (32, language_model(texts.Lstm, 256, 128)),
    "bert": (8, bert(pooled=False)),
    "bertpooled": (8, bert(pooled=True)),
    "electra": (8, electra),
    "t5": (8, t5),
    "dlrm": (2048, click_model(clicks(rows.Dlrm, bottom=(512, 256, 64), top=(512, 256)))),
    "deepfm": (2048, click_model(clicks(rows.DeepFm, deep=(400, 400, 400)))),
    "neumf": (256, neumf),
}
