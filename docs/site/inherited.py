"""What a public class inherits from a class of detail in its header, which the site leaves out, as its own."""
import re

DERIVED = re.compile(r"class \w+( : public detail::(\w+)<.*>) \{")


def with_inherited(lines: list[str]) -> list[str]:
    """The lines of a header, in which such members stand where their class ends. Each line keeps its number."""
    out = list(lines)
    for number, line in enumerate(lines):
        if found := DERIVED.fullmatch(line):
            out[number] = line.replace(found[1], "")
            end = lines.index("};", number)
            out[end] = f"public: {in_one_line(public_members(lines, found[2]))} }};"
    return out


def public_members(lines: list[str], name: str) -> list[str]:
    first = lines.index("  public:", lines.index(f"class {name} {{")) + 1
    return lines[first:next(i for i in range(first, len(lines)) if re.match(r"  (protected|private):|\};", lines[i]))]


def in_one_line(lines: list[str]) -> str:
    text = re.sub(r"///<(.*)", r"/**<\1 */", "\n".join(lines))
    text = re.sub(r"(^ *///.*\n)+", lambda comment: f"/**{re.sub(r'^ *///', '', comment[0], flags=re.M)} */", text,
                  flags=re.M)
    return " ".join(re.sub(r" // .*", "", text).split())
