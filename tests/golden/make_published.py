#!/usr/bin/env python3
"""Writes weights as torchvision and Hugging Face publish them, from networks in PyTorch, for published_test.cpp.

usage: make_published.py [FOLDER]       four small networks (default: the folder of this script); needs transformers
       make_published.py --large FOLDER ResNet-50, VGG-11 and GPT-2 of 124 million parameters, 1.2 GB

Besides the random weights, a file has an input (images (N, H, W, C), or tokens) and its logits."""
import os
import sys

import torch
import torch.nn as nn

import make_golden
from make_golden import Gpt, ResNet, write_safetensors


class Vgg11(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, channels = [], 3
        for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            if width == 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
                                        nn.Dropout(), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(self.features(x.permute(0, 3, 1, 2)).flatten(1))


def randomise(model):
    for name, p in model.named_parameters():
        nn.init.normal_(p, 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0,
                        0.1 if p.dim() == 1 else p[0].numel() ** -0.5)
    for name, b in model.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(b, 0.0, 0.1)
        elif name.endswith("running_var"):
            nn.init.uniform_(b, 0.5, 1.5)
        elif name.endswith("num_batches_tracked"):
            b.fill_(7)


class Llama(nn.Module):
    """Hugging Face's own network, which returns more than logits."""
    def __init__(self, **settings):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        self.network = LlamaForCausalLM(LlamaConfig(**settings, attn_implementation="eager"))

    def forward(self, x):
        return self.network(x).logits


def of_gpt2(model):
    """Has products (in, out) instead of (out, in), and the masks of attention."""
    context, state = model.wpe.weight.shape[0], {}
    for name, t in model.state_dict().items():
        product = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        state[name] = t.t() if product else t
    for i in range(len(model.h)):
        state[f"h.{i}.attn.bias"] = torch.ones(context, context).tril()[None, None]
    return state


def make(path, model, x, form=lambda model: model.state_dict()):
    torch.manual_seed(len(path.split(os.sep)[-1]))
    randomise(model)
    # Rounded as in the file, so that both sides begin with the same numbers.
    model.float().double()
    with torch.no_grad():
        logits = model.eval()(x)
    write_safetensors(path, {**form(model), "expected.input": x, "expected.logits": logits})
    print(path)


def main():
    large = sys.argv[1:2] == ["--large"]
    folder = sys.argv[1 + large] if len(sys.argv) > 1 + large else os.path.dirname(os.path.abspath(__file__))
    images = lambda n, side: torch.randn(n, side, side, 3).float().double()
    torch.manual_seed(1)
    place = lambda name: os.path.join(folder, name + ".safetensors")
    if large:
        make(place("resnet50"), ResNet([64, 128, 256, 512], True, True, 1000, [3, 4, 6, 3]), images(2, 224))
        make(place("vgg11"), Vgg11(1000), images(1, 224))
        make(place("gpt2"), Gpt(12, 12, 768, 50257, 1024), torch.randint(50257, (1, 64)), of_gpt2)
    else:
        make(place("published_resnet"), ResNet([4, 8], True, True, 10), images(1, 64))
        make(place("published_gpt"), Gpt(1, 2, 16, 40, 12), torch.randint(40, (2, 12)), of_gpt2)
        make(place("published_llama"),
             Llama(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                   num_key_value_heads=2, max_position_embeddings=12, rms_norm_eps=1e-3, rope_theta=500.0),
             torch.randint(40, (2, 12)), lambda model: model.network.state_dict())
        make(place("published_llama31"),
             Llama(vocab_size=40, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                   num_key_value_heads=1, max_position_embeddings=512,
                   rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
             torch.randint(40, (1, 200)), lambda model: model.network.state_dict())


if __name__ == "__main__":
    main()
