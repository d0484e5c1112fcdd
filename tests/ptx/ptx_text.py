"""PTX files as mutants.py needs them: the instructions of each function, numbered as in reach files (reach.h)."""
import re


class Function:
    """The instructions of a function, with single spaces, as the interpreter numbers them."""

    def __init__(self, text):
        self.instructions, self.labels = [], {}
        at = 0
        while at < len(text):
            if text[at] in " \t\r\n{}":
                at += 1
                continue
            stop = text.index(":" if text[at] == "$" else ";", at)
            if text[at] == "$":
                self.labels[text[at:stop]] = len(self.instructions)
            elif text[at] != ".":
                self.instructions.append(" ".join(text[at:stop].split()))
            at = stop + 1


def plain_name(mangled):
    """The name as reach files have it (name_without_build in text.cpp)."""
    out, at = "", 0
    while at < len(mangled):
        m = re.match(r"(\d+)_GLOBAL__N__", mangled[at:])
        if m:
            begin = at + len(m.group(1))
            unnamed = mangled[begin:begin + int(m.group(1))][len("_GLOBAL__N__"):]
            out += "<" + unnamed.split("_", 2)[2].split("_cu_")[0] + ">"
            at = begin + int(m.group(1))
        else:
            m = re.match(r"\d+|.", mangled[at:])
            out += m.group(0)
            at += m.end()
    return out


def functions_of(path):
    """{name: Function} of a PTX file."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    found = {}
    for m in re.finditer(r"\.(?:entry|func)\b[^;{]*?(\w+)\s*\([^;{]*\{", text):
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        names = re.findall(r"(_Z\w+)\s*\(", m.group(0))
        if names:
            found[plain_name(names[0])] = Function(text[m.end():end - 1])
    return found
