"""A folder of pages that a browser opens from the disk, or one file with all of them; texts of passages."""

import json
import re
from pathlib import Path

import jinja2
import numpy as np
import vl_convert
from markupsafe import Markup, escape

from teleport.report.charts import SOURCE_COLOURS
from teleport.report.render import WORDS, shortened
from teleport.report.verdicts import figure, p_text
from teleport.report.words import duration, size
from teleport.running.files import require_file, require_output, write_text

ASSETS = Path(__file__).parent / "assets"
FILES = "_page"  # below the folder of the page; no configuration can have this name
DOOR = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{1}</a>\n'
LINK = re.compile(r'href="([\w.+%-]+\.html)(?:#([^"]*))?"')
MOST_CHARACTERS = 1_000_000  # of the passages of all pages: where there are more, the longest ones are cut
LEAST_CUT = 120  # but never to less than this
WORDS_HERE = {"Drawn", "Dropped by filters", "Queries short", "Stage", "What", "Started", "Machine"}  # to the left, too


class Site:
    """Pages by file name, in the order in which they are added, and data that scripts load.

    title: of all pages; footer: a sentence below each; navigation: [(file name, text)] of the pages that may be there
    """

    def __init__(self, title, footer, navigation):
        self.title, self.footer, self.navigation = title, footer, navigation
        self.pages, self.data = {}, {}
        loader = jinja2.FileSystemLoader(ASSETS)
        self.templates = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
        )
        self.templates.filters |= FILTERS
        self.templates.globals |= {"words": WORDS | WORDS_HERE, "colours": SOURCE_COLOURS}

    def add(self, path, template, heading, **content):
        """Add a page that `template` makes from `content`."""
        self.pages[path] = heading, self.templates.get_template(template).render(title=self.title, **content)

    def put(self, name, value):
        """Add plain JSON (finite numbers), which a page loads by its name."""
        self.data[name] = f"page.put({script_json(name)},{script_json(value)});\n"

    def write(self, folder):
        """Write the pages to `folder`/_page, and an index.html that leads to them; returns the number of bytes of the
        pages."""
        files = Path(folder) / FILES
        texts = {path: self.whole(path, heading, body) for path, (heading, body) in self.pages.items()}
        texts |= {f"{name}.js": text for name, text in self.data.items()}
        texts |= {name: asset(name) for name in ("page.css", "page.js")} | {"vega.js": vega()}
        door = Path(folder) / "index.html"
        for path in (door, *(files / path for path in texts)):
            require_file(path)  # checks all before the first is written: no half page is left
        for path, text in texts.items():
            write_text(files / path, text)
        write_text(door, DOOR.format(f"{FILES}/index.html", escape(self.title)))
        return sum((files / path).stat().st_size for path in texts)

    def write_one_file(self, path):
        """Write all pages as one file that needs no other; returns the number of its bytes."""
        require_output(path, begins=b"<!doctype html>")
        articles = [
            f'<article id="{name}"{" hidden" * bool(at)}>{body}</article>'
            for at, (name, (_, body)) in enumerate(self.pages.items())
        ]
        scripts = [Markup(text) for text in (vega(), asset("page.js"), *self.data.values())]
        inline = {"css": Markup(asset("page.css")), "scripts": scripts}
        text = self.whole("index.html", self.title, "\n".join(articles), inline)
        write_text(Path(path), LINK.sub(self.inner_link, text))
        return Path(path).stat().st_size

    def inner_link(self, match):
        """A link to a page as one to its article."""
        name, rest = match.groups()
        return f'href="#{name}{f"/{rest}" if rest else ""}"' if name in self.pages else match[0]

    def whole(self, path, heading, body, inline=None):
        """The HTML of a page."""
        navigation = [(name, text) for name, text in self.navigation if name in self.pages]
        named = {"title": self.title, "footer": self.footer, "nav": navigation, "here": path}
        base = self.templates.get_template("base.html")
        return base.render(heading=heading, body=Markup(body), inline=inline, **named)


def asset(name):
    """The style sheet or the script of all pages (text)."""
    return (ASSETS / name).read_text(encoding="utf-8")


def vega():
    """Vega, Vega-Lite and Vega-Embed as one script (0.9 MB), which loads nothing."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def script_json(value):
    """JSON, of numpy numbers too, that is safe in a script: no text of it can end one, whatever a passage holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=np.generic.item)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def bold(text):
    """A cell of a `Printed` table as HTML: the text between two pairs of stars is bold."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text))))


FILTERS = {
    "script": lambda value: Markup(script_json(value)),
    "json": lambda value: json.dumps(value, ensure_ascii=False, default=str),
    "count": "{:,}".format,
    "signed": lambda value: figure(value, "+"),
    "p": p_text,
    "duration": lambda seconds: duration(seconds, 1),
    "bytes": size,
    "bold": bold,
    "shorten": shortened,
}


def read_texts(reader, pages):
    """{passage: [id, title, text, characters that were cut]} of the passages of `pages` (lists of passages).

    A passage is its row in the collection, or the id of one that the collection does not have (str), which has no text.
    The longest texts are cut, so that all pages together have MOST_CHARACTERS.
    """
    all_shown = [passage for page in pages for passage in page]
    texts = reader.passages({each for each in all_shown if not isinstance(each, str)})
    rows = {each: texts.get(each) or [each, "", ""] for each in dict.fromkeys(all_shown)}
    limit = longest_that_fit([len(rows[each][2]) for each in all_shown], MOST_CHARACTERS, LEAST_CUT)
    return {
        each: [doc, title, text[:limit], len(text[limit:]) if limit else 0] for each, (doc, title, text) in rows.items()
    }


def longest_that_fit(lengths, total, least):
    """The length (int) to which texts are cut so that they have `total` characters together, at least `least`; None:
    they fit."""
    if sum(lengths) <= total:
        return None
    left = total
    for number, length in enumerate(sorted(lengths)):
        level = left // (len(lengths) - number)  # characters for each of the rest
        if length >= level:
            return max(least, level)
        left -= length
