"""What the site and the tests know of Markdown."""
import re


def slug(heading: str) -> str:
    """The anchor of a heading, as code-hosting sites make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
