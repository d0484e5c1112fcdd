#!/usr/bin/env python3
"""Times training steps of PyTorch, on a GPU for tools/gpu-check: networks of `bench models` with the same optimisers and
random data.

    tools/peers/torch_steps.py NETWORK [--mode MODE] [--batch 32] [--repeat 10] [--device cuda] [--threads 2]

NETWORK is resnet50, gpt2, lstm, electra, or one that needs torchvision: mobilenetv2, efficientnetb0, shufflenetv2,
vittiny, swint.

Modes: float32 (TF32 off), bf16 (autocast), and either with ` compiled` (torch.compile). Prints a line of JSON with the
median rate, `per_second`, of images or tokens."""
import argparse
import json
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


class Decoder(nn.Module):
    """A pre-norm block of GPT-2."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers=12, heads=12, channels=768, vocabulary=50257, context=256):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(Decoder(channels, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


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
TEXT = {"gpt2": (Gpt2, 50257, 256), "lstm": (Lstm, 256, 128), "electra": (Electra, 30522, 128)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=(*CLASSIFIERS, *TEXT))
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
            loss = (network(x, y) if options.network == "electra" else
                    F.cross_entropy(network(x).flatten(0, -2), y.flatten()))
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
    print(json.dumps({"peer": "PyTorch " + torch.__version__, "network": options.network, "mode": options.mode,
                      "batch": batch, "step_seconds": median, "per_second": items / median}))


if __name__ == "__main__":
    main()
