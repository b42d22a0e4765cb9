"""The pages of the documentation, and the blocks of code in them.

Before a block, a comment that no reader sees may say what the tests do with it:

    <!-- example: setup=net ranks=4 prints="loss" -->
    <!-- example: needs=nccl
    what the block needs declared, at namespace scope
    ---
    statements that go before it
    -->

setup=A,B     preludes/A.hpp and preludes/B.hpp go before it, each in these two parts
ranks=N       how many ranks run it: 2 unless said otherwise
needs=A,B     what it is linked with, such as nccl for dptk::nccl; it is left out where one is missing. What its
              #include lines need is found without being named
prints="R"    what a program prints matches this expression
file=F        a header that blocks behind it include
scope=file    declarations alone, not in a namespace: specialisations of templates
run=no        compiled, and not run: a block that never ends, say
output        no commands, but what commands print
from=F        lines of the file F, which other tests compile and run; "// ..." stands for lines that are left out
diff=A,B      what has changed from file A to file B: check-excerpts --write writes it
"""
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRELUDES = Path(__file__).resolve().parent / "preludes"
KEYS = {"setup", "ranks", "needs", "prints", "file", "scope", "run", "output", "from", "diff"}

# What an #include line needs.
NEEDS = [
    (r"dptk/comm/mpi", "mpi"),
    (r"dptk/comm/gloo", "gloo"),
    (r"dptk/comm/nccl", "nccl"),
    (r"dptk/comm/staged|dptk/core/cuda|cuda_runtime", "cuda"),
    (r"dptk/data/readers", "readers"),
    (r"dptk/nn/cuda|dptk/train/cuda", "nn_cuda"),
    (r"dptk/train\.hpp|dptk/train/|dptk/nn/", "nn"),
    (r"dptk/nn/cpu", "onednn"),
    (r"dptk/adapters/eigen|<Eigen/", "eigen"),
    (r"dptk/adapters/armadillo|<armadillo>", "armadillo"),
    (r"dptk/adapters/libtorch|<torch/", "libtorch"),
]


@dataclass
class Block:
    """A fenced block: `line` is that of its first line of text."""
    page: Path
    line: int
    language: str
    text: str
    marks: dict = field(default_factory=dict)
    declarations: str = ""
    statements: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^a-z0-9]', '_', self.page.stem.lower())}_{self.line}"

    @property
    def is_program(self) -> bool:
        return re.search(r"^int main\(", self.text, re.M) is not None

    def parts_before(self) -> list[tuple[str, str]]:
        """The declarations and statements of its preludes, and then its own."""
        names = self.marks.get("setup", "").split(",")
        parts = [split_parts((PRELUDES / f"{name}.hpp").read_text()) for name in names if name]
        return parts + [(self.declarations, self.statements)]

    @property
    def needs(self) -> frozenset[str]:
        named = self.marks.get("needs", "").split(",")
        code = self.text + "".join(declarations for declarations, _ in self.parts_before())
        includes = "\n".join(re.findall(r"^#include .*", code, re.M))
        found = {need for pattern, need in NEEDS if re.search(pattern, includes)}
        return frozenset(found | {need for need in named if need})


def split_parts(text: str) -> tuple[str, str]:
    declarations, _, statements = re.sub(r"^// ?---$", "---", text, flags=re.M).partition("---\n")
    return declarations, statements


def read_marks(comment: str, place: str) -> tuple[dict, str, str]:
    first, _, rest = comment.partition("\n")
    marks = dict((word.split("=", 1) + [""])[:2] for word in shlex.split(first))
    if unknown := marks.keys() - KEYS:
        raise SystemExit(f"{place}: no such mark: {', '.join(sorted(unknown))}")
    return marks, *split_parts(rest)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """All of a page's blocks, with what their comments say."""
    found, lines = [], page.read_text().splitlines()
    marks, number = ({}, "", ""), 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("<!-- example:"):
            start = number
            while not lines[number].rstrip().endswith("-->"):
                number += 1
            comment = "\n".join(lines[start:number + 1]).removeprefix("<!-- example:").rstrip().removesuffix("-->")
            marks = read_marks(comment.strip(" "), f"{page.relative_to(ROOT)}:{start + 1}")
        elif fence := re.match(r"^(\s*)```(\S*)", line):
            start = number + 1
            number = next(i for i in range(start, len(lines)) if lines[i].strip() == "```")
            text = "\n".join(part.removeprefix(fence[1]) for part in lines[start:number])
            found.append(Block(page, start + 1, fence[2], text + "\n", *marks))
            marks = ({}, "", "")
        number += 1
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def text_without_blocks(page: Path) -> list[tuple[int, str]]:
    """The numbered lines of a page that are neither code nor comments."""
    kept, inside = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if inside is None and line.startswith("<!--"):
            inside = "-->"
        elif inside is None and line.lstrip().startswith("```"):
            inside = "```"
            continue
        if inside is None:
            kept.append((number, line))
        elif (line.rstrip().endswith("-->") if inside == "-->" else line.strip() == "```"):
            inside = None
    return kept
