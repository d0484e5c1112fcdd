#!/usr/bin/env python3
"""Times training steps of PyTorch, on a GPU for tools/gpu-check: networks of `bench models` with the same optimisers and
random data.

    tools/peers/torch_steps.py NETWORK [--mode MODE] [--batch 32] [--repeat 10] [--device cuda] [--threads 2]

NETWORK is resnet50, gpt2, chargptexperts (a small GPT with eight experts in each block), lstm, electra, yolov3 (with ten
boxes in each image of 416 x 416), or one that needs torchvision: mobilenetv2, efficientnetb0, shufflenetv2, vittiny,
swint.

Modes: float32 (TF32 off), bf16 (autocast), and either with ` compiled` (torch.compile). Prints a line of JSON with the
median rate, `per_second`, of images or tokens; on a GPU also the peak memory of tensors, `gpu_mb`."""
import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Sequential):
    """A convolution without bias and its batch norm."""

    def __init__(self, cin, cout, size, stride=1):
        super().__init__(nn.Conv2d(cin, cout, size, stride, size // 2, bias=False), nn.BatchNorm2d(cout))


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.one, self.two, self.three = Unit(cin, width, 1), Unit(width, width, 3, stride), Unit(width, 4 * width, 1)
        self.shortcut = Unit(cin, 4 * width, 1, stride) if cin != 4 * width else nn.Identity()

    def forward(self, x):
        y = self.three(F.relu(self.two(F.relu(self.one(x)))))
        return F.relu(y + self.shortcut(x))


def resnet50():
    layers, cin = [Unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(cin, width, stride if block == 0 else 1))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))


class Leaky(nn.Sequential):
    """Units with a leaky ReLU each, given as (in, out, size) or (in, out, size, stride)."""

    def __init__(self, *shapes):
        super().__init__(*(part for shape in shapes for part in (Unit(*shape), nn.LeakyReLU(0.1))))


class Darknet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convs = Leaky((channels, channels // 2, 1), (channels // 2, channels, 3))

    def forward(self, x):
        return x + self.convs(x)


class YoloV3(nn.Module):
    """Gives rows of 5 + classes numbers, of the coarsest scale first."""

    def __init__(self, classes=80):
        super().__init__()
        self.stem, self.numbers = Leaky((3, 32, 3)), 5 + classes
        self.stages = nn.ModuleList(nn.Sequential(Leaky((32 << s, 64 << s, 3, 2)), *(Darknet(64 << s) for _ in range(n)))
                                    for s, n in enumerate((1, 2, 8, 8, 4)))
        self.narrow, self.convs, self.last = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for c in (1024, 512, 256):
            h, joined = c // 2, c if c == 1024 else c + c // 2
            self.narrow.append(nn.Identity() if c == 1024 else Leaky((c, h, 1)))
            self.convs.append(Leaky((joined, h, 1), (h, c, 3), (c, h, 1), (h, c, 3), (c, h, 1)))
            self.last.append(nn.Sequential(Leaky((h, c, 3)), nn.Conv2d(c, 3 * self.numbers, 1)))

    def forward(self, x):
        features, rows, x = [], [], self.stem(x)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        for s, (narrow, convs, last) in enumerate(zip(self.narrow, self.convs, self.last)):
            if s > 0:
                x = torch.cat([F.interpolate(narrow(x), scale_factor=2), features[4 - s]], 1)
            x = convs(x)
            rows.append(last(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.numbers))
        return torch.cat(rows, 1)


class BoxLoss:
    """YOLOv3's loss with generalised IoU, as nn/task_detection.cpp has it, summed over images."""
    ANCHORS = ((116, 90, 156, 198, 373, 326), (30, 61, 62, 45, 59, 119), (10, 13, 16, 30, 33, 23))

    def __init__(self, boxes, classes, device, side=416):
        """Targets: boxes (N, M, 5) of a label, centre, width and height in shares of the image."""
        cells = []
        for s, anchors in enumerate(self.ANCHORS):
            g = side // 32 << s
            y, x = torch.meshgrid(torch.arange(g), torch.arange(g), indexing="ij")
            place = torch.stack([x, y], -1).reshape(-1, 1, 2).expand(-1, 3, 2)
            sides = (torch.tensor(anchors) / side).reshape(1, 3, 2).expand(g * g, 3, 2)
            cells.append(torch.cat([place.float(), torch.full_like(sides, g), sides], -1).reshape(-1, 6))
        self.cells = torch.cat(cells).to(device)
        self.truth, n = self.corners(boxes[..., 1:3], boxes[..., 3:5]).to(device), len(boxes)
        shapes = torch.cat([self.corners(torch.zeros(9, 2), torch.tensor(self.ANCHORS).reshape(9, 2) / side)])
        best = self.iou(self.corners(torch.zeros_like(boxes[..., 3:5]), boxes[..., 3:5])[..., None, :], shapes)[0].argmax(-1)
        g = torch.tensor(side // 32) << best // 3
        before = 3 * (side // 32) ** 2 * torch.tensor([0, 1, 5])[best // 3]
        cell = (boxes[..., 1:3] * g[..., None]).long()
        row = before + 3 * (cell[..., 1] * g + cell[..., 0]) + best % 3
        self.row = row.to(device)
        self.sought = torch.zeros(n, len(self.cells)).scatter(1, row, 1.0).to(device)
        self.labels = F.one_hot(boxes[..., 0].long(), classes).float().to(device)

    @staticmethod
    def corners(centre, sides):
        return torch.cat([centre - sides / 2, centre + sides / 2], -1)

    @staticmethod
    def iou(a, b):
        """Intersections over unions, and the share of the hull that the union leaves."""
        area = lambda low, high: (high - low).clamp(min=0).prod(-1)
        both = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
        either = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - both
        hull = area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
        return both / either, (hull - either) / hull

    def boxes(self, rows, cells):
        centre = (rows[..., :2].sigmoid() + cells[..., :2]) / cells[..., 2:4]
        return self.corners(centre, rows[..., 2:4].clamp(max=4.135).exp() * cells[..., 4:])

    def __call__(self, rows):
        rows = rows.float()
        with torch.no_grad():
            near = self.iou(self.boxes(rows, self.cells)[:, None], self.truth[:, :, None])[0].amax(1) > 0.5
        counted = (self.sought > 0) | ~near
        own = rows.gather(1, self.row[..., None].expand(-1, -1, rows.shape[2]))
        iou, free = self.iou(self.boxes(own, self.cells[self.row]), self.truth)
        objectness = F.binary_cross_entropy_with_logits(rows[..., 4], self.sought, reduction="none")
        classes = F.binary_cross_entropy_with_logits(own[..., 5:], self.labels, reduction="sum")
        return 2 * (1 - iou + free).sum() + classes + (objectness * counted).sum()


class Mixture(nn.Module):
    """Experts in place of a perceptron: choices, capacity, order of service and loss are those of the setting `experts`
    of a `gpt`. `loss` is that of the last forward pass."""

    def __init__(self, channels, experts=8, chosen=2, factor=1.25, weight=0.01):
        super().__init__()
        self.gate = nn.Linear(channels, experts, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(experts, channels, 4 * channels))
        self.down = nn.Parameter(0.02 * torch.randn(experts, 4 * channels, channels))
        self.experts, self.chosen, self.factor, self.weight, self.loss = experts, chosen, factor, weight, None

    def forward(self, x):
        tokens = x.flatten(0, 1)
        n, channels = tokens.shape
        logits = self.gate(tokens).float()
        best, chosen = logits.topk(self.chosen)
        weights, expert = best.softmax(-1).T.flatten(), chosen.T.flatten()  # first choices first
        of_expert = F.one_hot(expert, self.experts)
        position = (of_expert.cumsum(0) * of_expert).sum(1) - 1
        capacity = math.ceil(self.factor * self.chosen * n / self.experts)
        kept = (position < capacity).nonzero()[:, 0]
        row, token = (expert * capacity + position)[kept], kept % n
        rows = tokens.new_zeros(self.experts * capacity, channels).index_copy(0, row, tokens[token])
        hidden = F.gelu(torch.bmm(rows.view(self.experts, capacity, channels), self.up), approximate="tanh")
        made = torch.bmm(hidden, self.down).flatten(0, 1)
        y = torch.zeros_like(tokens).index_add(0, token, (made[row] * weights[kept, None]).to(tokens.dtype))
        self.loss = self.weight * self.experts * (of_expert.float().mean(0) * logits.softmax(-1).mean(0)).sum()
        return y.view_as(x)


class Decoder(nn.Module):
    """A pre-norm block of GPT-2."""

    def __init__(self, channels, heads, experts=False):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        if experts:
            self.mixture = Mixture(channels)
        else:
            self.mixture = None
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        if self.mixture is not None:
            return x + self.mixture(self.norm2(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers=12, heads=12, channels=768, vocabulary=50257, context=256, experts=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(Decoder(channels, heads, experts) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    def router_loss(self):
        return sum(block.mixture.loss for block in self.blocks if block.mixture is not None)


class Lstm(nn.Module):
    def __init__(self, layers=2, width=512, vocabulary=256):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


class Encoder(nn.Module):
    """A post-norm block of BERT."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels, eps=1e-12), nn.LayerNorm(channels, eps=1e-12)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        drop = lambda y: F.dropout(y, 0.1, self.training)
        x = self.norm1(x + drop(self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))))
        return self.norm2(x + drop(self.down(F.gelu(self.up(x)))))


class Electra(nn.Module):
    """ELECTRA's small generator and discriminator; gives its loss."""

    def __init__(self, layers=12, channels=256, heads=4, embedding=128, vocabulary=30522, context=512):
        super().__init__()
        small = channels // 4
        self.tokens, self.positions = nn.Embedding(vocabulary, embedding), nn.Embedding(context, embedding)
        self.types, self.norm = nn.Embedding(2, embedding), nn.LayerNorm(embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        blocks = lambda width, heads: [nn.Linear(embedding, width), *(Encoder(width, heads) for _ in range(layers))]
        self.generator = nn.Sequential(*blocks(small, heads // 4), nn.Linear(small, embedding), nn.GELU(),
                                       nn.LayerNorm(embedding))
        self.discriminator = nn.Sequential(*blocks(channels, heads), nn.Linear(channels, channels), nn.GELU(),
                                           nn.Linear(channels, 1))

    def embed(self, tokens):
        x = self.tokens(tokens) + self.types.weight[0] + self.positions.weight[:tokens.shape[1]]
        return F.dropout(self.norm(x), 0.1, self.training)

    def forward(self, tokens, targets):
        chosen = targets >= 0
        logits = F.linear(self.generator(self.embed(tokens)), self.tokens.weight, self.bias)
        with torch.no_grad():
            rows = logits[chosen].float()
            seen = tokens.clone()
            seen[chosen] = torch.argmax(rows - torch.log(-torch.log(torch.rand_like(rows))), 1)
        found = self.discriminator(self.embed(seen))[..., 0]
        replaced = (chosen & (seen != targets)).float()
        restored = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        errors = F.binary_cross_entropy_with_logits(found.float(), replaced, reduction="sum")
        return (restored + 7.5 * errors) / chosen.sum()


def vit_tiny():
    from torchvision.models import VisionTransformer
    return VisionTransformer(224, 16, 12, 3, 192, 768)


def of_torchvision(name):
    def make():
        import torchvision
        return getattr(torchvision.models, name)()
    return make


CLASSIFIERS = {"resnet50": resnet50, "mobilenetv2": of_torchvision("mobilenet_v2"), "vittiny": vit_tiny,
               "efficientnetb0": of_torchvision("efficientnet_b0"), "swint": of_torchvision("swin_t"),
               "shufflenetv2": of_torchvision("shufflenet_v2_x1_0")}
# Network, vocabulary, length.
TEXT = {"gpt2": (Gpt2, 50257, 256), "chargptexperts": (lambda: Gpt2(6, 6, 384, 256, experts=True), 256, 256),
        "lstm": (Lstm, 256, 128), "electra": (Electra, 30522, 128)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=(*CLASSIFIERS, "yolov3", *TEXT))
    parser.add_argument("--mode", default="float32", choices=("float32", "float32 compiled", "bf16", "bf16 compiled"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, help="CPU threads; one is timed by its own clock, as `bench` does")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    now = time.process_time if options.threads == 1 and options.device == "cpu" else time.perf_counter
    device, batch = torch.device(options.device), options.batch
    if options.network in CLASSIFIERS:
        model = CLASSIFIERS[options.network]().to(device, memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        y, items = torch.randint(1000, (batch,), device=device), batch
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    elif options.network == "yolov3":
        model = YoloV3().to(device, memory_format=torch.channels_last)
        x, items = torch.randn(batch, 3, 416, 416, device=device).to(memory_format=torch.channels_last), batch
        place, sides = 0.25 + 0.5 * torch.rand(batch, 10, 2), 0.05 + 0.4 * torch.rand(batch, 10, 2)
        box_loss = BoxLoss(torch.cat([torch.randint(80, (batch, 10, 1)).float(), place, sides], -1), 80, device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    else:
        make, vocabulary, length = TEXT[options.network]
        model = make().to(device)
        x, y = (torch.randint(vocabulary, (batch, length), device=device) for _ in range(2))
        if options.network == "electra":
            y = torch.where(torch.rand(y.shape, device=device) < 0.15, y, -100)
        items = x.numel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=device.type == "cuda")
    network = torch.compile(model) if options.mode.endswith("compiled") else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.mode.startswith("bf16")):
            if options.network == "yolov3":
                loss = box_loss(network(x)) / batch
            elif options.network == "electra":
                loss = network(x, y)
            else:
                loss = F.cross_entropy(network(x).flatten(0, -2), y.flatten())
        if options.network == "chargptexperts":
            loss = loss + model.router_loss()
        loss.backward()
        optimizer.step()

    def seconds():
        began = now()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return now() - began

    for _ in range(5 if device.type == "cuda" else 1):
        seconds()
    median = statistics.median(seconds() for _ in range(options.repeat))
    memory = {"gpu_mb": torch.cuda.max_memory_allocated() >> 20} if device.type == "cuda" else {}
    print(json.dumps({"peer": "PyTorch " + torch.__version__, "network": options.network, "mode": options.mode,
                      "batch": batch, "step_seconds": median, "per_second": items / median, **memory}))


if __name__ == "__main__":
    main()
