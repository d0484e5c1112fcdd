"""Mutants that compute the same as the kernel: those that a rule recognises, and those in equivalent.txt."""
import pathlib
import re


def without_numbers(text):
    """Registers and labels without their numbers, which change with every change of a kernel."""
    return re.sub(r"(%[a-z]+|\$L__BB)\d[\d_]*", r"\1", text)


def chooses_division(instructions, number):
    """Whether nvcc's choice between a division of 32 bits and one of 64 (division.h) is made here. Its other side gives
    the same quotient for all operands below 2^32, and no test has tensors of so many elements."""
    return (number > 0 and re.match(r"setp\.eq\.s64 \S+, \S+, 0$", instructions[number])
            and re.match(r"and\.b64 \S+, \S+, -4294967296$", instructions[number - 1]))


def same_choice(mutant, instructions):
    """"a < b ? a : b" with "<=": for equal operands both are the result. Zeros of different sign are equal, too, so a
    floating-point operand must be a constant other than zero."""
    m = re.match(r"setp\.(?:[lg][te]u?)\.(\w+) (%p\d+), (\S+), (\S+)$", mutant.before)
    if mutant.way != "edge" or not m:
        return None
    kind, choice, a, b = m.groups()
    if kind[0] == "f" and not (re.match(r"0[fd]", b) and int(b[2:], 16) << 1 & (1 << 4 * len(b[2:])) - 1):
        return None
    uses = [text for text in instructions if re.search(choice + r"\b", text) and text != mutant.before]
    if all(re.match(rf"selp\.\w+ \S+, ({re.escape(a)}, {re.escape(b)}|{re.escape(b)}, {re.escape(a)}), {choice}$", text)
           for text in uses):
        return "both operands are the result if they are equal"
    return None


def same_bound(mutant, instructions):
    """"x < C ? x : C" with the next number after C > 0: for the one number between them, C, both are the result."""
    m = re.match(r"setp\.ltu?\.f32 (%p\d+), (\S+), (0f[0-7]\w{6}[02468ACE])$", mutant.before)
    if mutant.way != "last_bit" or not m or int(m.group(3)[2:], 16) == 0:
        return None
    choice, x, bound = m.groups()
    uses = [text for text in instructions if re.search(choice + r"\b", text) and text != mutant.before]
    if all(re.match(rf"selp\.f32 \S+, {x}, {bound}, {choice}$", text) for text in uses):
        return "the bound is the result for itself"
    return None


def all_numbers(mutant, _):
    """DeviceFunctions computes each function of one bfloat16 for all numbers, at each place of an access."""
    if "14unary_elements" in mutant.function and "NS_4bf16E" in mutant.function and ".f32" in mutant.before:
        return "the same for all numbers of bfloat16, which a test tries"
    return None


def same_shift(mutant, _):
    """A shift by the width or more is one by the width."""
    if mutant.way == "off_by_one" and re.match(r"shr\.s(32 \S+, \S+, 31|64 \S+, \S+, 63)$", mutant.before):
        return "the sign fills the register in both"
    return None


def smaller_heads(mutant, instructions):
    """fast_attention.h: heads of at most half of kSize elements take the kernel of a smaller kSize, so columns of the
    first half are always within the head."""
    size = re.search(r"4fast.*ILi(64|128)E", mutant.function)
    if mutant.way != "edge" or not size or not re.match(r"setp\.(le|gt)\.s64 ", mutant.before):
        return None
    for text in instructions[mutant.number:mutant.number + 8]:
        if store := re.match(r"st\.global\.u(?:16|32) \[%rd\d+(?:\+(\d+))?\]", text):
            column = int(store.group(1) or 0) // 16 * 8  # the first of eight, each of two bytes
            return "heads are longer, or take another kernel" if column + 8 <= int(size.group(1)) // 2 else None
    return None


# exp of math-inl.h was computed for all float32 with each of these changed: no result differs. The same does not hold
# for expm1, tanh and erf, which contain the same constants.
EXP_LOW, EXP_LAST = "0f3102E308", "0f394E2FCC"  # the lower part of ln 2, the coefficient of the highest power
ONLY_EXP = re.compile(r"unary_elementsINS0_8formulas(3Exp|7Sigmoid|4Silu|8Softplus|4Mish)E"
                      r"|gradient_elementsINS0_8formulas(3Erf|4Silu|8Softplus|4Mish|3Elu)E")


def exact_exp(mutant, instructions):
    if mutant.file == "pointwise" and not ONLY_EXP.search(mutant.function):
        return None
    constant = {m.group(1): m.group(2) for m in
                (re.match(r"mov\.f32 (%f\d+), (0f\w+)$", text) for text in instructions) if m}
    if mutant.way == "last_bit":
        if mutant.before.split(", ")[-1] in (EXP_LOW, EXP_LAST):
            return "exp has the same bits for all float32"
    if mutant.way == "unfused" and (m := re.match(r"fma\.rn\.f32 \S+, (\S+), (\S+), \S+$", mutant.before)):
        if {constant.get(x, x) for x in m.groups()} & {EXP_LOW, EXP_LAST}:
            return "exp has the same bits for all float32"
    return None


LOG_LOW = "0f35BFBE8E"  # the lower part of ln 2 in log


def exact_log(mutant, instructions):
    """Of sums of softmax, which are 1 or more: log was computed for all of them."""
    m = re.match(r"fma\.rn\.f32 \S+, (\S+), (\S+), \S+$", mutant.before)
    if mutant.way != "unfused" or mutant.file not in ("softmax", "cross_entropy") or not m:
        return None
    if any(re.match(rf"mov\.f32 {re.escape(x)}, {LOG_LOW}$", text) for x in m.groups() for text in instructions):
        return "log has the same bits for all float32 from 1 to 2^32"
    return None


def same_lanes(mutant, instructions):
    """The largest of lanes l, l ^ 16, .., l ^ 1, or the "and" of all: it is the same with l ^ 17 for l ^ 16, and so on,
    because l ^ 1 follows. Maxima of floating-point numbers are those that exponentials are taken of, so a zero of another
    sign changes no result. Fast attention adds up four lanes in pairs that are equal."""
    m = re.match(r"shfl\.sync\.bfly\.b32 (%r\d+)\|%p\d+, (%r\d+), (%r\d+), ", mutant.before)
    if mutant.way != "other_lane" or not m:
        return None
    other, own, lane = m.groups()
    constant = next((t for t in instructions if t.startswith(f"mov.u32 {lane}, ")), "0").split(" ")[-1]
    if not constant.isdigit() or int(constant) <= 1:
        return None
    following = instructions[mutant.number + 1:mutant.number + 4]
    is_integer = re.match(rf"(?:max\.s32|and\.b32) %r\d+, (?:{own}, {other}|{other}, {own})$", following[0])
    is_float = (re.match(rf"mov\.b32 %f\d+, {other}$", following[0]) and following[1].startswith("setp.lt.f32 ")
                and following[2].startswith("selp.f32 "))
    return "the same lanes" if is_integer or is_float or "12fast_queries" in mutant.function else None


def matches(pattern, text):
    return text.startswith(pattern[:-2]) if pattern.endswith("..") else text == pattern


class Listed:
    """A line of equivalent.txt has the way, the file, a part of the function's name, a pattern and the reason, separated
    by " | "; "*" stands for any file or function. The pattern is instructions in a row, without the numbers of registers,
    separated by "; "; the one that is changed is marked by ">". ".." at the end of an instruction stands for any rest."""

    def __init__(self, functions):
        self.functions, self.entries = functions, []
        for line in pathlib.Path(__file__).with_name("equivalent.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                way, file, part, pattern, reason = line.split(" | ")
                self.entries.append((way, file, part, pattern.split("; "), reason))

    def reason(self, mutant):
        instructions = self.functions[mutant.file][mutant.function].instructions
        for rule in (same_choice, same_bound, same_shift, all_numbers, smaller_heads, exact_exp, exact_log, same_lanes):
            if reason := rule(mutant, instructions):
                return reason
        for way, file, part, pattern, reason in self.entries:
            first = mutant.number - next(i for i, text in enumerate(pattern) if text[0] == ">")
            if (way == mutant.way and file in ("*", mutant.file) and (part == "*" or part in mutant.function) and first >= 0
                    and len(instructions) >= first + len(pattern)
                    and all(matches(part_of.lstrip(">"), without_numbers(text))
                            for part_of, text in zip(pattern, instructions[first:]))):
                return reason
        return None
