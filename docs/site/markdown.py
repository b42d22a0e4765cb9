"""Markdown functions that the site and the tests share."""
import re


def slug(heading: str) -> str:
    """The anchor of a heading, as on code-hosting sites."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
