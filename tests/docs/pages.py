"""Parses the pages of the documentation and the code blocks in them.

A hidden comment before a block may have marks, which tell the tests what to do with the block:

    <!-- example: setup=net ranks=4 prints="loss" -->
    <!-- example: needs=nccl
    declarations that the block needs, at namespace scope
    ---
    statements before the block
    -->

setup=A,B     the block is preceded by preludes/A.hpp and preludes/B.hpp, each with these two parts
ranks=N       the number of ranks that run it (default: 2)
needs=A,B     the libraries that it links, such as nccl for dptk::nccl; it is left out if one is missing. Libraries that
              its #include lines need are found automatically
prints="R"    the output of the program must match this regular expression
file=F        the block is a header F, which later blocks include
scope=file    the block has only declarations outside of a namespace, such as specializations of templates
run=no        the block is compiled but not run, for example because it never ends
output        the block shows the output of commands, not commands
from=F        the block is an excerpt of the file F, which other tests compile and run; "// ..." stands for omitted lines
diff=A,B      the block is the difference between the files A and B; check-excerpts --write updates it
"""
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRELUDES = Path(__file__).resolve().parent / "preludes"
KEYS = {"setup", "ranks", "needs", "prints", "file", "scope", "run", "output", "from", "diff"}

# The library that an #include line needs.
NEEDS = [
    (r"dptk/comm/mpi", "mpi"),
    (r"dptk/comm/gloo", "gloo"),
    (r"dptk/comm/nccl", "nccl"),
    (r"dptk/comm/staged|dptk/core/cuda|cuda_runtime", "cuda"),
    (r"dptk/data/readers", "readers"),
    (r"dptk/data/images", "images"),
    (r"dptk/weights", "weights"),
    (r"dptk/nn/cuda|dptk/optim/cuda|dptk/train/detail/cuda", "nn_cuda"),
    (r"dptk/train\.hpp|dptk/train/|dptk/nn/|dptk/prune/", "nn"),
    (r"dptk/nn/cpu", "onednn"),
    (r"dptk/adapters/eigen|<Eigen/", "eigen"),
    (r"dptk/adapters/armadillo|<armadillo>", "armadillo"),
    (r"dptk/adapters/libtorch|<torch/", "libtorch"),
]


@dataclass
class Block:
    """A fenced code block. `line` is the number of its first line of text."""
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
        """The declarations and statements of its preludes, followed by its own."""
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
        raise SystemExit(f"{place}: unknown mark: {', '.join(sorted(unknown))}")
    return marks, *split_parts(rest)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, with their marks."""
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
    """The lines of a page that are neither code nor comments, with their numbers."""
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
