"""For tools/build_site.py, which hands this file to griffe: examples in docstrings become blocks of code."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Put each example, which is text to the end of its paragraph, between fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fence_examples(obj.docstring.value)


def fence_examples(text: str) -> str:
    """The docstring with its examples in fences.

    >>> fence_examples("Add.\\n\\n>>> 1 + 1\\n2\\n\\nMore.")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nMore.'
    """
    return EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
