#!/usr/bin/env python3
"""Compares logits with those of Hugging Face's transformers and of torchvision, in both directions.

usage: published.py [BIN] [NAME ...]     BIN: the folder of train and tokenize; default: build/bin; NAME: cases, as below

Needs torch, torchvision, transformers and Pillow; nothing is downloaded. Each case has random weights.

  import  a network of transformers or torchvision is saved, `train import` reads it, `train eval --logits` computes
  export  `train export RUN DIR/` is loaded by from_pretrained(DIR), of torchvision by load_state_dict(strict=True)

Differences are those from the same network in float64, as a share of its largest logit. A line also says whether the
exported tensors are those that were imported, in every bit, and whether the tokenizer of the folder makes the tokens
that `train` evaluated."""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy
import torch
import torchvision
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
TEXT = "README.md"
CONTEXT, BATCH = 32, 8
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WORST = 2e-5  # of the largest logit
bin_folder = "build/bin"


def run(program, *arguments):
    done = subprocess.run([os.path.join(bin_folder, program), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def toml(value):
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, (list, tuple)) else json.dumps(value)


def write_config(path, model, data):
    tables = {"run": {"steps": 3, "batch_size": BATCH, "virtual_ranks": 1}, "model": model, "data": data,
              "optimizer": {"lr": 0.01}}
    with open(path, "w", encoding="utf-8") as file:
        for name, table in tables.items():
            file.write(f"[{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items()))


def randomise(model):
    """Values of an order that makes every layer count; biases and statistics are not zero."""
    torch.manual_seed(3)
    for name, p in model.named_parameters():
        torch.nn.init.normal_(p, 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0,
                              0.1 if p.dim() == 1 else p[0].numel() ** -0.5)
    for name, b in model.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(b, 0.0, 0.1)
        elif name.endswith("running_var"):
            torch.nn.init.uniform_(b, 0.5, 1.5)
    return model.eval()


class Texts:
    """README.md as tokens: their number, a [data] table, and what `train eval` sees."""
    def __init__(self, folder, tokens):
        self.data = {"kind": "text", "path": os.path.abspath(TEXT), "tokens": tokens, "context": CONTEXT}
        self.text = open(TEXT, encoding="utf-8", newline="").read()
        if tokens == "byte":
            self.ids, self.vocabulary = list(self.text.encode()), 256
        elif tokens == "character":
            symbols = sorted(set(self.text))
            self.ids, self.vocabulary = [symbols.index(c) for c in self.text], len(symbols)
        else:
            path = os.path.join(folder, "tokenizer.json")
            run("tokenize", "learn", TEXT, "--vocabulary", "600", "--pattern", "qwen2", "--out", path)
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
            self.data["tokenizer"] = path
            self.ids, self.vocabulary = tokenizer(self.text)["input_ids"], len(tokenizer)

    def inputs(self):
        begin = int(len(self.ids) * 0.9)
        windows = range(begin, len(self.ids) - CONTEXT, CONTEXT)
        return torch.tensor([self.ids[i:i + CONTEXT] for i in windows])

    def check_tokenizer(self, folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        good = tokenizer(self.text, add_special_tokens=False)["input_ids"] == self.ids
        return good and tokenizer.decode(self.ids) == self.text


class Images:
    def __init__(self, folder, side, classes):
        self.data = {"kind": "image_folder", "path": os.path.join(folder, "images"), "image_size": side,
                     "mean": MEAN, "std": STD}
        random = numpy.random.default_rng(1)
        self.pixels = []
        for split in ("train", "val"):
            for c in range(classes):
                place = os.path.join(self.data["path"], split, f"class{c}")
                os.makedirs(place)
                pixels = random.integers(0, 256, (side, side, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(os.path.join(place, "0.png"))
                if split == "val":
                    self.pixels.append(pixels)

    def inputs(self):
        x = torch.from_numpy(numpy.stack(self.pixels)).double() / 255
        return ((x - torch.tensor(MEAN, dtype=torch.float64)) / torch.tensor(STD, dtype=torch.float64)).permute(0, 3, 1, 2)

    def check_tokenizer(self, _):
        return None


def logits_of(model, inputs):
    model = model.eval().double()
    if hasattr(model, "config"):
        model.config._experts_implementation = "eager"  # others have no float64
    with torch.no_grad():
        y = model(inputs)
    return y if isinstance(y, torch.Tensor) else y.logits


def difference(got, expected):
    return ((got.double() - expected).abs().max() / expected.abs().max()).item()


def loaded(folder, factory):
    """The network of an exported folder; nothing may be missing or left over."""
    if factory:
        model = factory()
        model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=True)
        return model
    config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
    images = "ImageClassification" in config["architectures"][0]
    auto = transformers.AutoModelForImageClassification if images else transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    for what, keys in info.items():
        assert not keys, (what, keys)
    assert type(model).__name__ == config["architectures"][0]
    if config["model_type"] != "mixtral":  # whose networks join the files' experts
        type(model)(model.config).load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=True)
    return model


def compare(name, folder, settings, data, model=None, factory=None):
    """Of `model`, or without one of what `train run` makes; `factory` makes a network of torchvision."""
    place = lambda file: os.path.join(folder, file)
    write_config(place("run.toml"), settings, data.data)
    inputs, figures = data.inputs(), []
    if model is None:
        run("train", "run", place("run.toml"), "--run-dir", place("run"))
    else:
        randomise(model)
        if factory:
            os.makedirs(place("theirs"))
            save_file(model.state_dict(), place("theirs/model.safetensors"))
        else:
            model.save_pretrained(place("theirs"))
        run("train", "import", place("theirs"), place("run.toml"), place("run"))
    run("train", "eval", place("run"), "--logits", place("logits.safetensors"))
    ours = load_file(place("logits.safetensors"))["logits"]
    run("train", "export", place("run"), place("exported/"))
    back = loaded(place("exported"), factory)
    same = "-"
    if model is not None:
        before, after = model.state_dict(), back.state_dict()
        equal = before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)
        same = "yes" if equal else "NO"
        figures.append(difference(ours, logits_of(model, inputs)))
    figures.append(difference(ours, logits_of(back, inputs)))
    tokenizer = {None: "-", True: "yes", False: "NO"}[data.check_tokenizer(place("exported"))]
    shown = " ".join(["      -"] * (2 - len(figures)) + [f"{f:.1e}" for f in figures])
    print(f"{name:24} {shown}  same bits {same:3}  same tokens {tokenizer}", flush=True)
    return max(figures) <= WORST and "NO" not in (same, tokenizer)


def gpt2(folder):
    data = Texts(folder, "byte")
    config = transformers.GPT2Config(vocab_size=256, n_positions=48, n_embd=32, n_layer=3, n_head=4,
                                     bos_token_id=None, eos_token_id=None)
    return compare("gpt2", folder, {"kind": "gpt", "layers": 3, "heads": 4, "channels": 32, "context": 48}, data,
                   transformers.GPT2LMHeadModel(config))


def gpt_without_biases(folder):
    return compare("gpt, bias = false", folder, {"kind": "gpt", "layers": 2, "heads": 2, "channels": 32, "bias": False,
                                                 "tied_head": False}, Texts(folder, "character"))


LLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": CONTEXT, "bos_token_id": None,
         "eos_token_id": None}
OURS = {"kind": "llama", "layers": 2, "heads": 4, "kv_heads": 2, "channels": 32, "hidden": 48}


def llama(folder):
    data = Texts(folder, "character")
    return compare("llama", folder, OURS, data,
                   transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=data.vocabulary, **LLAMA)))


def llama31(folder):
    data = Texts(folder, "bpe")
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}
    config = transformers.LlamaConfig(vocab_size=data.vocabulary, rope_parameters=rope, **LLAMA)
    return compare("llama 3.1", folder, {**OURS, "rope_base": 500.0, "rope_factor": 8.0, "rope_original_context": 16},
                   data, transformers.LlamaForCausalLM(config))


def qwen2(folder):
    data = Texts(folder, "bpe")
    config = transformers.Qwen2Config(vocab_size=data.vocabulary, tie_word_embeddings=True,
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **LLAMA)
    return compare("qwen2, tied", folder, {**OURS, "rope_base": 1e6, "qkv_bias": True, "tied_head": True}, data,
                   transformers.Qwen2ForCausalLM(config))


def mixtral(folder):
    data = Texts(folder, "byte")
    config = transformers.MixtralConfig(vocab_size=data.vocabulary, num_local_experts=4, num_experts_per_tok=2,
                                        rope_theta=500.0, **LLAMA)
    return compare("mixtral", folder, {**OURS, "rope_base": 500.0, "experts": 4}, data,
                   transformers.MixtralForCausalLM(config))


def electra(folder):
    """Both networks are read and written again; what they compute is in tests/golden/make_published.py."""
    data, place = Texts(folder, "byte"), lambda file: os.path.join(folder, file)
    data.data |= {"masking": 0.15, "targets_as_input": True}
    config = lambda channels: transformers.ElectraConfig(vocab_size=257, embedding_size=16, hidden_size=channels,
                                                         num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                                                         max_position_embeddings=CONTEXT)
    discriminator = randomise(transformers.ElectraForPreTraining(config(32)))
    generator = randomise(transformers.ElectraForMaskedLM(config(8)))
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    write_config(place("run.toml"), {"kind": "electra", "layers": 2, "heads": 2, "channels": 32, "hidden": 48,
                                     "embedding": 16, "generator_heads": 2, "generator_channels": 8,
                                     "generator_hidden": 48}, data.data)
    discriminator.save_pretrained(place("theirs"))
    generator.save_pretrained(place("theirs/generator"))
    run("train", "import", place("theirs"), place("run.toml"), place("run"), "--set", 'task.kind="replaced_tokens"')
    run("train", "export", place("run"), place("exported/"))
    same, tokens = True, True
    for part, model in (("", discriminator), ("generator", generator)):
        back, info = type(model).from_pretrained(place("exported/" + part), output_loading_info=True)
        assert not any(info.values()), info
        before, after = model.state_dict(), back.state_dict()
        same &= before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)
        tokens &= data.check_tokenizer(place("exported/" + part))
    said = {True: "yes", False: "NO"}
    print(f"{'electra':24}       -       -  same bits {said[same]:3}  same tokens {said[tokens]}", flush=True)
    return same and tokens


def vgg16(folder):
    factory = lambda: torchvision.models.vgg16(num_classes=10)
    return compare("vgg16", folder, {"kind": "vgg16", "batch_norm": False, "head": "imagenet"}, Images(folder, 64, 10),
                   factory(), factory)


def vgg11_bn(folder):
    return compare("vgg11_bn, no conv_bias", folder, {"kind": "vgg11", "head": "imagenet"}, Images(folder, 64, 10),
                   factory=lambda: torchvision.models.vgg11_bn(num_classes=10))


def of_torchvision(name):
    def case(folder):
        factory = lambda: getattr(torchvision.models, name)(num_classes=10, **({"image_size": 64} if "vit" in name else {}))
        return compare(name, folder, {"kind": name}, Images(folder, 64, 10), factory(), factory)
    case.__name__ = name
    return case


TORCHVISION = ("wide_resnet50_2", "mobilenet_v2", "efficientnet_b0", "shufflenet_v2_x1_0", "vit_b_16", "swin_t")


def resnet_of(folder, name, settings, **changes):
    labels = {"id2label": {i: f"class{i}" for i in range(10)}, "label2id": {f"class{i}": i for i in range(10)}}
    config = transformers.ResNetConfig(**changes, **labels)
    return compare(name, folder, {"stem": "imagenet", **settings}, Images(folder, 64, 10),
                   transformers.ResNetForImageClassification(config))


def resnet(folder):
    return resnet_of(folder, "resnet, bottleneck", {"kind": "resnet", "blocks": [1, 2], "widths": [8, 16],
                                                    "bottleneck": True},
                     embedding_size=8, hidden_sizes=[32, 64], depths=[1, 2], layer_type="bottleneck")


def resnet18(folder):
    return resnet_of(folder, "resnet18", {"kind": "resnet18"}, embedding_size=64, hidden_sizes=[64, 128, 256, 512],
                     depths=[2, 2, 2, 2], layer_type="basic")


def resnet50(folder):
    return resnet_of(folder, "resnet50", {"kind": "resnet50"})


CASES = [gpt2, gpt_without_biases, llama, llama31, qwen2, mixtral, electra, vgg16, vgg11_bn,
         *map(of_torchvision, TORCHVISION), resnet, resnet18, resnet50]


def main():
    global bin_folder
    bin_folder = sys.argv[1] if len(sys.argv) > 1 else bin_folder
    chosen = [case for case in CASES if len(sys.argv) <= 2 or case.__name__ in sys.argv[2:]]
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, transformers {transformers.__version__}")
    print(f"{'network':24} import  export")
    good = True
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            good &= case(folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
