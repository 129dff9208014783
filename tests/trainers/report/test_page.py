"""The page of a report: nothing runs in it and nothing is loaded but what it was written with."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from corral.trainers.report.page import controls, note, page, table

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\r\n\x00"


class Parts(HTMLParser):
    """What a browser would run, style, and load of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.policy: dict[str, str] = {}
        self.inside = ""
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("http-equiv") == "Content-Security-Policy":
            directives = (part.split() for part in str(values["content"]).split(";"))
            self.policy = {name: " ".join(sources) for name, *sources in directives}
        self.loads += [name for name in values if name in ("src", "href") or name.startswith("on")]
        self.inside = tag if tag in self.texts else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside].append(data)


def test_its_policy_allows_its_own_script_and_style_alone() -> None:
    body = controls() + table(["a"], [[HOSTILE]]) + note(HOSTILE)
    text = page(HOSTILE, [HOSTILE], body, {"corral": HOSTILE}, verdict=[HOSTILE])
    parts = Parts(text)
    assert parts.policy["default-src"] == "'none'"
    assert parts.policy["base-uri"] == parts.policy["form-action"] == "'none'"
    for tag, directive in (("script", "script-src"), ("style", "style-src-elem")):
        (own,) = parts.texts[tag]
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert parts.policy[directive] == f"'sha256-{digest}'"
    assert parts.loads == []
    assert "unsafe" not in " ".join(v for k, v in parts.policy.items() if k != "style-src-attr")


def test_its_policy_stands_before_all_that_it_is_for() -> None:
    text = page("title", [], "", {})
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script>")
    assert re.search(r"<title>title</title>", text)
