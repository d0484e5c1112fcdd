#!/usr/bin/env python3
"""Writes weights as torchvision and Hugging Face publish them, from networks in PyTorch, for published_test.cpp.

usage: make_published.py [FOLDER]       small networks (default: the folder of this script); needs transformers
       make_published.py --large FOLDER ResNet-50, VGG-11 and GPT-2 of 124 million parameters, 1.2 GB

Besides the random weights, a file has an input (images (N, H, W, C), or tokens) and its logits; that of T5 also has the
tokens of the decoder and the lengths of the encoder's."""
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


class OfTransformers(nn.Module):
    """Hugging Face's own network, which returns more than logits."""
    def __init__(self, kind, config, **settings):
        super().__init__()
        import transformers
        self.network = getattr(transformers, kind)(getattr(transformers, config)(**settings, attn_implementation="eager"))
        self.further = {}  # for an encoder and a decoder: what the decoder reads, and the lengths of the encoder's texts

    def forward(self, x):
        if not self.further:
            return self.network(x).logits
        seen = torch.arange(x.shape[1])[None] < self.further["lengths"]
        return self.network(x, attention_mask=seen.long(), decoder_input_ids=self.further["targets"]).logits

    def file(self):
        return {**self.network.state_dict(), **{f"expected.{name}": t for name, t in self.further.items()}}


def llama(**settings):
    return OfTransformers("LlamaForCausalLM", "LlamaConfig", **settings)


def mixtral(**settings):
    return OfTransformers("MixtralForCausalLM", "MixtralConfig", experts_implementation="eager", **settings)


def of_mixtral(model):
    """As save_pretrained writes it: each expert has its own tensors."""
    state = {}
    for name, t in model.file().items():
        if name.endswith("experts.gate_up_proj"):
            before = name[: -len("gate_up_proj")].replace(".mlp.", ".block_sparse_moe.")
            for e, both in enumerate(t):
                state[f"{before}{e}.w1.weight"], state[f"{before}{e}.w3.weight"] = both.chunk(2)
        elif name.endswith("experts.down_proj"):
            before = name[: -len("down_proj")].replace(".mlp.", ".block_sparse_moe.")
            state.update({f"{before}{e}.w2.weight": own for e, own in enumerate(t)})
        else:
            state[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = t
    return state


def t5():
    model = OfTransformers("T5ForConditionalGeneration", "T5Config", vocab_size=40, d_model=24, d_kv=10, d_ff=32,
                           num_layers=1, num_decoder_layers=2, num_heads=3, feed_forward_proj="gated-gelu",
                           relative_attention_num_buckets=8, relative_attention_max_distance=20)
    model.further = {"targets": torch.randint(40, (2, 6)), "lengths": torch.tensor([[8], [5]])}
    return model


class Electra(nn.Module):
    """Both networks of an ELECTRA, which see all tokens as they are; the generator has the discriminator's embeddings."""
    def __init__(self):
        super().__init__()
        import transformers
        config = lambda channels, heads, hidden: transformers.ElectraConfig(
            vocab_size=40, embedding_size=12, hidden_size=channels, num_hidden_layers=2, num_attention_heads=heads,
            intermediate_size=hidden, max_position_embeddings=12, attn_implementation="eager")
        self.discriminator = transformers.ElectraForPreTraining(config(24, 3, 32))
        self.generator = transformers.ElectraForMaskedLM(config(8, 2, 16))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

    def forward(self, x):
        replaced = self.discriminator(x).logits.unsqueeze(2)
        return torch.cat([self.generator(x).logits, replaced, torch.zeros_like(replaced)], 2)

    def file(self):
        return {**self.state_dict(), "expected.targets": torch.full((2, 12), -100)}


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
             llama(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                   num_key_value_heads=2, max_position_embeddings=12, rms_norm_eps=1e-3, rope_theta=500.0),
             torch.randint(40, (2, 12)), OfTransformers.file)
        make(place("published_llama31"),
             llama(vocab_size=40, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                   num_key_value_heads=1, max_position_embeddings=512,
                   rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
             torch.randint(40, (1, 200)), OfTransformers.file)
        make(place("published_mixtral"),
             mixtral(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=12, num_local_experts=4, num_experts_per_tok=2),
             torch.randint(40, (2, 12)), of_mixtral)
        make(place("published_bert"),
             OfTransformers("BertForMaskedLM", "BertConfig", vocab_size=40, hidden_size=24, num_hidden_layers=2,
                            num_attention_heads=3, intermediate_size=32, max_position_embeddings=12),
             torch.randint(40, (2, 12)), OfTransformers.file)
        make(place("published_t5"), t5(), torch.randint(40, (2, 8)), OfTransformers.file)
        make(place("published_electra"), Electra(), torch.randint(40, (2, 12)), Electra.file)


if __name__ == "__main__":
    main()
