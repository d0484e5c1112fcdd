"""equivalent.txt: the mutants that compute the same as the kernel, with reasons."""
import pathlib
import re


def without_numbers(text):
    """Registers and labels without their numbers, which change with every change of a kernel."""
    return re.sub(r"(%[a-z]+|\$L__BB)\d[\d_]*", r"\1", text)


class Listed:
    """A line has the way, the file, a part of the function's name, a pattern and the reason, separated by " | ". The
    pattern is instructions in a row, without the numbers of registers, separated by "; "; the one that is changed is
    marked by ">"."""

    def __init__(self, functions):
        self.functions, self.entries = functions, []
        for line in pathlib.Path(__file__).with_name("equivalent.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                way, file, part, pattern, reason = line.split(" | ")
                self.entries.append((way, file, part, pattern.split("; "), reason))

    def reason(self, mutant):
        instructions = self.functions[mutant.file][mutant.function].instructions
        for way, file, part, pattern, reason in self.entries:
            first = mutant.number - next(i for i, text in enumerate(pattern) if text[0] == ">")
            if (way == mutant.way and file in ("*", mutant.file) and (part == "*" or part in mutant.function) and first >= 0
                    and [without_numbers(text) for text in instructions[first:first + len(pattern)]]
                    == [text.lstrip(">") for text in pattern]):
                return reason
        return None
