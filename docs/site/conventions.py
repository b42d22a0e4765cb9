"""Adds descriptions of members that a documented concept or the language defines: those of network backends and
iterators, moves, and specializations of DTypeTraits. They have no comment in the headers.

All other public names must have a comment in the header, otherwise doxygen warns.
"""
import re

BACKEND = ("fuses_relu|nominal_input|input_layout|output_gradient_layout|make_layer|reserve|bytes|make_memory|bind|load|"
           "plan_store|plan_sum")
ITERATOR = r"using (value_type|reference|pointer|difference_type|iterator_concept|iterator_category) ="

# Patterns of a header's path and of a declaration in it, and the description. The first match counts.
CONVENTIONS = [
    (r"nn/\w+/backend\.hpp", rf"using (Scalar|Tensor|Elements|Layout|Memory|Parameter|Layer) =|\bcopies_tensors =|\b({BACKEND})\(",
     "See NetworkBackend."),
    (r"data/", rf"{ITERATOR}|\boperator(\*|\+\+|--|\+=|-=)\(", "See std::input_iterator."),
    (r"", r"\b(\w+)(& operator=)?\(\1&&( other)?\)(?!.* = delete)", "Moves the contents of the other object."),
    (r"", r"struct DTypeTraits<|\bDType value =", "See DTypeTraits."),
]


def described(header: str, lines: list[str]) -> list[str]:
    """Returns the lines of a header, with descriptions before such members. Comments after a member become its
    documentation. Line numbers do not change."""
    out = []
    for number, line in enumerate(lines):
        start = first_line(lines, number)
        line = re.sub(r"^( {4,8}[\w:<>*, ]+(?: = [^;/]*)?;) +// (?!NOLINT)", r"\1 ///< ", line)
        if re.match(r" {4}\S|struct |using |#define |\[\[nodiscard", line) and "///" not in line and not lines[start - 1].lstrip().startswith("///"):
            sentence = next((text for where, what, text in CONVENTIONS
                             if re.match(where, header) and re.search(what, line.partition("{")[0])), "")
            out.append(line)
            out[start] = f"/** {sentence} */ {out[start]}" if sentence else out[start]
        else:
            out.append(line)
    return out


def first_line(lines: list[str], number: int) -> int:
    """The number of the line in which a declaration begins, including its template and requires clauses."""
    while number > 0 and re.match(r"\s*(template <|requires\b)", lines[number - 1]):
        number -= 1
    return number
