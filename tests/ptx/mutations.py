"""Ways to change an instruction, for mutants.py. Each returns the changed text, or None if it does not apply."""
import re


def unfused(text):
    m = re.match(r"(@\S+ )?fma\.rn\.(f32|f64) (\S+), (\S+), (\S+), (\S+)$", text)
    if not m:
        return None
    guard, kind, to, a, b, c = m.group(1) or "", *m.groups()[1:]
    return (f".reg .{kind} %mutant_{kind}; {guard}mul.rn.{kind} %mutant_{kind}, {a}, {b}; "
            f"{guard}add.rn.{kind} {to}, %mutant_{kind}, {c}")


def neighbour(text):
    m = re.match(r"(?:@\S+ )?(?:ld|st)\.(?:global|shared)\S*?\.(?:v2\.|v4\.)?[a-z](8|16|32|64) .*?(\[[^\]]*\])", text)
    if not m:
        return None
    size = int(m.group(1)) // 8 * (4 if ".v4." in text else 2 if ".v2." in text else 1)
    address = m.group(2)
    place = re.match(r"\[([^+\]]+)(?:\+(-?\d+))?\]", address)
    return text.replace(address, f"[{place.group(1)}+{int(place.group(2) or 0) + size}]")


def last_bit(text):
    found = list(re.finditer(r"0[fd]([0-9A-F]{8,16})", text))
    if not found:
        return None
    m = found[-1]
    bits = int(m.group(1), 16) ^ 1
    return text[:m.start(1)] + f"{bits:0{len(m.group(1))}X}" + text[m.end(1):]


def edge(text):
    swap = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
            "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu", "equ": "neu", "neu": "equ"}
    m = re.search(r"\bsetp\.([a-z]+)\.", text)
    if not m or m.group(1) not in swap:
        return None
    return text[:m.start(1)] + swap[m.group(1)] + text[m.end(1):]


def without_barrier(text):
    return ".reg .b32 %mutant_b32; mov.u32 %mutant_b32, 0" if re.match(r"(bar\.sync|barrier\.sync)", text) else None


def other_lane(text):
    m = re.match(r"(shfl\.sync\.(?:bfly|down|up|idx)\.b32 \S+, \S+, )(\S+)(, .*)$", text)
    return (f".reg .b32 %mutant_b32; xor.b32 %mutant_b32, {m.group(2)}, 1; {m.group(1)}%mutant_b32{m.group(3)}"
            if m else None)


def off_by_one(text):
    m = re.match(r"((?:@\S+ )?(?:add|sub|mad\.lo|shl|shr)\.\S+ .*, )(-?\d+)$", text)
    return f"{m.group(1)}{int(m.group(2)) + 1}" if m else None


def other_operation(text):
    swap = {"add": "sub", "sub": "add", "min": "max", "max": "min"}
    m = re.match(r"(?:@\S+ )?(add|sub|min|max)\.(?:rn\.|ftz\.)*(?:f32|f64|NaN\.f32) ", text)
    return text[:m.start(1)] + swap[m.group(1)] + text[m.end(1):] if m else None


WAYS = {way.__name__: way for way in
        [unfused, neighbour, last_bit, edge, without_barrier, other_lane, off_by_one, other_operation]}
