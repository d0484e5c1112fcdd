#!/usr/bin/env python3
"""Writes corpus/: small initial inputs of the fuzz targets. Needs Pillow for the JPEGs (pip install pillow), and the
directory of a run of a few steps for files of runs: python3 make_corpus.py RUN_DIR
"""
import gzip
import io
import json
import pathlib
import struct
import sys
import tarfile

from PIL import Image

HERE = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    path = HERE / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def images():
    colour = Image.new("RGB", (9, 7))
    colour.putdata([(28 * x, 36 * y, 13 * (x + y)) for y in range(7) for x in range(9)])

    def saved(image, **options):
        out = io.BytesIO()
        image.save(out, **options)
        return out.getvalue()

    exif = Image.Exif()
    exif[0x0112] = 6
    write("image", "baseline.jpg", saved(colour, format="JPEG", quality=60))
    write("image", "progressive.jpg", saved(colour, format="JPEG", quality=60, progressive=True))
    write("image", "rotated.jpg", saved(colour, format="JPEG", quality=60, exif=exif))
    write("image", "gray.jpg", saved(colour.convert("L"), format="JPEG", quality=60))
    write("image", "cmyk.jpg", saved(colour.convert("CMYK"), format="JPEG", quality=60))
    write("image", "restarts.jpg", saved(colour, format="JPEG", quality=60, restart_marker_blocks=1))
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        write("image", f"{mode.lower()}.png", saved(colour.convert(mode), format="PNG"))
    write("image", "16-bit.png", saved(colour.convert("L").convert("I;16"), format="PNG"))


def archives():
    def tar(form, members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()[:4096]

    long_name = "train/" + "a" * 120 + ".jpg"
    write("tar", "ustar", tar(tarfile.USTAR_FORMAT, [("a.txt", b"one"), ("b/c.txt", b"two" * 200)]))
    write("tar", "gnu", tar(tarfile.GNU_FORMAT, [(long_name, b"one"), ("b", b"")]))
    write("tar", "pax", tar(tarfile.PAX_FORMAT, [(long_name, b"one"), ("\u00e9", b"two")]))


def idx():
    pictures = struct.pack(">IIII", 0x803, 2, 3, 4) + bytes(range(24))
    labels = struct.pack(">II", 0x801, 2) + bytes([0, 7])
    for name, a, b in (("plain", pictures, labels), ("packed", gzip.compress(pictures, mtime=0), gzip.compress(labels, mtime=0))):
        write("idx", name, struct.pack("<H", len(a)) + a + b)


def coco():
    box = lambda i, image, category, numbers, **more: {"id": i, "image_id": image, "category_id": category, "bbox": numbers, **more}
    text = json.dumps({
        "images": [{"id": 5, "file_name": "b.png", "width": 8, "height": 4}, {"id": 2, "file_name": "a.png", "width": 4, "height": 8}],
        "categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "ant"}],
        "annotations": [box(1, 5, 7, [1, 1, 2.5, 2], segmentation=[[1, 2, 3]]), box(2, 5, 3, [0, 0, 8, 4], iscrowd=1),
                        box(3, 2, 3, [-0.25, 7, 4.5, 1.5])]})
    write("coco", "boxes", text)
    write("coco", "left-out", text.replace("2.5", "0") + "\n")


def table():
    rows = "x,c,y\n1,a,2\n,\"b, c\",3.5\n-4e3,,0"
    write("table", "numbers", rows.encode())
    write("table", "classes", (rows.replace("\n", "\r\n") + "\r\n").encode())
    objects = [{"x": 1, "c": ["a", 7], "y": 2}, {"x": None, "c": "b", "y": 3.5}, {"x": -4e3, "c": [], "y": "0"}]
    lines = "\n".join(json.dumps(row) for row in objects)
    write("table", "objects", lines.encode())
    write("table", "objects-of-classes", lines.encode() + b"\n")


def ratings():
    rows = [(1, 10, 5, 90), (1, 11, 3.5, 91), (2, 12, 4, 80), (2, 10, 1, 70), (3, 13, 2, 60)]
    for name, separator in (("dat", "::"), ("data", "\t")):
        write("ratings", name, "".join(separator.join(map(str, row)) + "\n" for row in rows).encode())
    head = "userId,movieId,rating,timestamp\r\n"
    write("ratings", "csv", (head + "".join(",".join(map(str, row)) + "\r\n" for row in rows)).encode())


def byte_characters():
    """Returns GPT-2's names of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            names[byte] = chr(byte)
        else:
            names[byte] = chr(256 + extra)
            extra += 1
    return [names[byte] for byte in range(256)]


def tokenizers():
    letters = byte_characters()
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    vocabulary["<|endoftext|>"] = len(vocabulary)
    special = {"id": vocabulary["<|endoftext|>"], "content": "<|endoftext|>", "single_word": False, "lstrip": False,
               "rstrip": False, "normalized": False, "special": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "post_processor": None,
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "vocab": vocabulary,
                           "merges": [" ".join(pair) for pair in merges]}}
    write("tokenizer", "small.json", json.dumps(tokenizer, ensure_ascii=False))
    tokenizer["model"]["merges"] = [list(pair) for pair in merges]
    tokenizer["pre_tokenizer"]["add_prefix_space"] = True
    write("tokenizer", "prefix.json", json.dumps(tokenizer))
    write("merges", "small", json.dumps(vocabulary) + "\0#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


def token_files():
    for name, magic, version, form in (("short", 20240520, 1, "H"), ("long", 20240801, 7, "I")):
        tokens = [1, 2, 3, 50256]
        header = struct.pack("<256i", magic, version, len(tokens), *[0] * 253)
        write("token_file", name, header + struct.pack(f"<{len(tokens)}{form}", *tokens))


def safetensors(tensors):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def tensor_files():
    plain = safetensors([("a", "F32", [2, 3], struct.pack("<6f", *range(6))), ("b", "I64", [], struct.pack("<q", 5)),
                         ("c", "F16", [2], struct.pack("<2e", 1, -2)), ("d", "U8", [0], b"")])
    write("safetensors", "several", plain)
    write("safetensors", "none", safetensors([]))
    weights = safetensors([("h.0.attn.bias", "U8", [2], b"\1\0"), ("wte.weight", "BF16", [2, 2], bytes(8))])
    index = {"metadata": {"total_size": 10}, "weight_map": {"h.0.attn.bias": "a.safetensors", "wte.weight": "a.safetensors"}}
    write("published", "index", json.dumps(index).encode() + b"\0" + weights)


def configurations():
    write("config", "images", (
        '[run]\nsteps = 3\nbatch_size = 4\nvirtual_ranks = 2\nname = "a"\n\n[data]\nkind = "synthetic"\nclasses = 3\n'
        'mean = [0.5, 0.25, 1]\n\n[optimizer]\nkind = "adamw"\nlr = 1e-3\nexempt = ["vectors", "*.bias"]\n\n[schedule]\n'
        'kind = "cosine"\nwarmup_steps = 1\n\n[ledger]\nleaves = "all"\n\n[[model.layer]]\nkind = "conv2d"\nout = 6\n'
        '[[model.layer]]\nkind = "residual"\nlayer = [{kind = "batch_norm"}]\n[[model.layer]]\nkind = "linear"\n'))
    write("config", "overrides", '[run]\nepochs = 1.5\nbatch_size = 4\n[data]\nkind = "text"\npath = "x"\n'
          '[model]\nkind = "gpt"\nlayers = 1\n\0run.seed=2\0optimizer.lr=0.5\0data.path=a b')
    write("chaos", "several", "kill:worker=1,step=17;stall:worker=0,step=3,seconds=1.5;flip:worker=2,step=6,bit=165,"
          "what=reduced;random:seed=7,rate=0.05")
    for name, text in (("tcp", "tcp://127.0.0.1:4000"), ("six", "tcp://[::1]:0"), ("ipc", "ipc:///tmp/x"), ("inproc", "inproc://a")):
        write("endpoint", name, text)
    write("text", "greek", "\u03b1\u03b2\u03b3 abc \U0001f600\n")


def messages():
    def frames(*parts):
        return b"".join(struct.pack("<H", len(part)) + part for part in parts)

    head = b"ELNV" + struct.pack("<IQQqqI", 1, 7, 9, 2, 41, 1)
    write("message", "blob", frames(head, json.dumps({"kind": "state", "part": 0, "name": ["a", 1.5, None]}).encode(), bytes(16)))
    write("message", "small", frames(b"ELNV" + struct.pack("<IQQqqI", 1, 7, 9, 2, 41, 0), b'{"kind":"facts"}'))
    write("body", "layout", json.dumps([["fc.weight", "float32", [3, 4]], ["fc.bias", "float32", [3]]]))
    def protocol(kind, body, blob=""):
        write("protocol", kind, f"{kind}\n{json.dumps(body)}" + (f"\n{blob}" if blob else ""))

    zeros = "0" * 32
    protocol("warm", {})
    protocol("send_state", {"peer": 7, "endpoint": "tcp://127.0.0.1:7", "part": 0, "parts": 2, "attempt": 1, "copies": True})
    protocol("fenced", {"promised": 2, "active": True, "loaded": True, "keeps": True, "share": [{"begin": 0, "end": 3}],
                        "group": 0, "scaling_state": [8, 8, 0, 4607182418800017408], "certain": True, "end": 9})
    protocol("result", {"bucket": 1, "slices": 1, "attempt": 0}, "\0\0\0\0")
    protocol("part", {"member": 1, "held": 1, "seconds": 0, "group": 0, "state": zeros,
                      "facts": {"3": {"loss_sum": 4611686018427387904, "count": 3, "correct": 1, "samples": 3,
                                      "batch": zeros, "batch_tensors": "", "tensors": "", "attached": None}}})
    report = {"lr": 0, "gradient_norm": 0, "readers": ""}
    protocol("facts", {"told": {"at": 0, "steps": [{"step": 4, "text": True}]}},
             json.dumps({"state_digests": {"tensors": "", "chunks": ""}, "report": report, "at": 0}))


def hostile():
    """Writes inputs that once broke a reader, or kept it busy."""
    def job(layers="{kind = 'linear'}", **settings):
        tables = {"run": {"steps": 3, "batch_size": 4}, "data": {"kind": "'synthetic'"}}
        for name, value in settings.items():
            table, key = name.split("__")
            tables.setdefault(table, {})[key] = value
        text = "".join(f"[{table}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for table, keys in tables.items())
        return f"{text}[model]\nlayer = [{layers}]\n"

    write("config", "dotted-header", "[" + "a." * 20000 + "a]\n")
    write("config", "dotted-key", "a = {" + "a." * 20000 + "a = 1}\n")
    write("config", "nested-arrays", "a = " + "[" * 20000)
    write("config", "nested-tables", "a = " + "{a = " * 8000)
    write("config", "nested-override", job() + "\0model.a=" + "[" * 20000)
    write("config", "repeats", job("{kind = 'repeat', times = 100000, layer = [{kind = 'repeat', times = 100000, layer = "
                                   "[{kind = 'relu'}]}]}"))
    repeats = "{kind = 'batch_norm'}"
    for _ in range(12):
        repeats = f"{{kind = 'repeat', times = 2, layer = [{repeats}]}}"
    write("config", "repeats-that-fit", job(repeats + ", {kind = 'flatten'}, {kind = 'linear'}"))
    write("config", "named-twice", job("{kind = 'relu', name = 'a'}, {kind = 'linear', name = 'a'}"))
    write("config", "large-layers", job("{kind = 'adaptive_avg_pool', out = 16777216}, {kind = 'flatten'}, {kind = 'linear'}"))
    write("config", "large-batch", job(run__batch_size=2**63 - 1))
    write("config", "milestones", job(schedule__kind="'step'", schedule__milestones="[5, 3, -1]"))
    write("config", "name", job(run__name="'../x'"))
    for kind, setting in (("mlp", "hidden = [16777216, 16777216]"), ("gpt", "layers = 16777216"),
                          ("resnet", "blocks = [16777216, 1]\nwidths = [1, 1]"), ("llama", "channels = 16777216")):
        write("config", f"large-{kind}", job().split("[model]")[0] + f"[model]\nkind = '{kind}'\n{setting}\n")

    deep, far = b"[" * 20000 + b"]" * 20000, b'{"a":' * 8000 + b"1" + b"}" * 8000
    for name, text in (("arrays", deep), ("objects", far)):
        write("body", f"nested-{name}", text)
        write("tokenizer", f"nested-{name}.json", b'{"model":' + text + b"}")
        write("merges", f"nested-{name}", b'{"a":' + text + b"}\0")
        write("safetensors", f"nested-{name}", struct.pack("<Q", len(text)) + text)
        write("published", f"nested-{name}", b'{"weight_map":' + text + b"}\0")
        write("checkpoint", f"nested-{name}", b'{"parts":' + text + b"}\0")
        write("record", f"nested-{name}", b"\0".join([b""] * 3 + [b'{"event":' + text + b"}\n", text, text]))
        write("ledger", f"nested-{name}", b'{"step":' + text + b',"sum":"')
        head = b"ELNV" + struct.pack("<IQQqqI", 1, 7, 9, 2, 41, 0)
        write("message", f"nested-{name}", struct.pack("<H", len(head)) + head + struct.pack("<H", len(text)) + text)
    write("tokenizer", "far.json", b'{"model":{"vocab":{"a":16777215}}}')
    write("merges", "far", b'{"a":16777215}\0')


def sliced_checkpoint():
    """A checkpoint of format 2. Its checksums are wrong, which readers find after they have read the header."""
    header = json.dumps({"__metadata__": {"whole_shapes": '{"w":[2,2]}'},
                         "step": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
                         "w[0:4]": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}).encode()
    part = struct.pack("<Q", len(header)) + header + bytes(24)
    manifest = {"format": 2, "numerics_version": 1, "step": 1, "state": "0" * 32,
                "parts": [{"file": "state.safetensors", "bytes": len(part), "digest": "0" * 32}]}
    write("checkpoint", "slices", json.dumps(manifest).encode() + b"\0" + part)


def of_a_run(run):
    """Writes files of a run, cut to a few lines each."""
    def head(name, lines):
        return b"".join((run / name).read_bytes().splitlines(keepends=True)[:lines])

    events = [json.loads(line) for line in head("events.jsonl", 3).splitlines()]
    for event in events:
        if "environment" in event:
            event["environment"] = {"isa": "avx2", "host": "here"}
    for file in ("ledger.jsonl", "digests.jsonl"):
        for i, line in enumerate(head(file, 3).splitlines()):
            write("ledger", f"{file.split('.')[0]}-{i}", line)
    generation = sorted((run / "generations").glob("*.json"))[0].read_bytes()
    write("body", "generation", generation)
    write("record", "run", b"\0".join([head("ledger.jsonl", 4), head("digests.jsonl", 3), head("metrics.jsonl", 3),
                                       "".join(json.dumps(e) + "\n" for e in events).encode(), b'{"isa": "avx2"}', generation]))
    checkpoint = sorted((run / "checkpoints").glob("step-*"))[-1]
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["step"] = 1
    text = json.dumps(manifest)
    part = next(checkpoint.glob("*.safetensors"))
    write("checkpoint", "step", text.replace(part.name, "state.safetensors").encode() + b"\0" + part.read_bytes())


if __name__ == "__main__":
    images()
    archives()
    idx()
    coco()
    table()
    ratings()
    tokenizers()
    token_files()
    tensor_files()
    configurations()
    messages()
    hostile()
    sliced_checkpoint()
    of_a_run(pathlib.Path(sys.argv[1]))
