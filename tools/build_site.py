"""Build the documentation site: python tools/build_site.py

With --names it writes the list of public names, tests/public_names.txt, and builds nothing.

The pages are the Markdown files of docs/, results/ and the root, as they are; links between them work in the repository
and on the site. They are copied to build/pages, a page of the API is added for each room, and zensical builds site/ of
them, strictly: a broken link or an unknown name ends the build. Nothing is fetched.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "shiftprism"
LINK = re.compile(r"(?<!`)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s#]*)(?P<anchor>#[^()\s]*)?\)")
CODE = re.compile(r"^ *(```|~~~).*?^ *\1 *$|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE)
GUIDES = ("decide", "calibrate", "monitor", "deploy", "onnx", "benchmark", "compare", "reproduce")
SECTIONS = {
    "Decide and watch": ("detector", "verdicts", "monitor", "export", "runtime", "serving", "store", "deploy", "scale"),
    "Score and calibrate": ("outputs", "classifier", "scores", "edits", "style", "calibrators", "recommend", "metrics"),
    "Train and measure": (
        *("backbones", "heads", "training", "devices", "datasets", "corruptions", "shifts"),
        *("benchmark", "rows", "claims", "report", "plots"),
    ),
}
"""The pages of docs/ beside the guides, in the order of the menu. A page that is not named is the last of its own."""
LAST = ("paper", "design", "errors", "glossary", "deprecation")
CONFIG = """\
[project]
site_name = "ShiftPrism"
site_description = "Tells when an image classifier is out of its depth, and which way."
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
extra_css = ["site.css"]
extra_javascript = ["site.js"]
nav = {nav}

[project.theme]
variant = "classic"
font = false
features = ["navigation.tabs", "navigation.top", "search.highlight", "content.code.copy", "toc.follow"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
primary = "indigo"
toggle = {{ icon = "lucide/sun", name = "Dark" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
primary = "indigo"
toggle = {{ icon = "lucide/moon", name = "Light" }}

[project.plugins.mkdocstrings.handlers.python]
paths = [{source}]

[project.plugins.mkdocstrings.handlers.python.options]
show_root_heading = false
show_root_toc_entry = false
show_source = false
show_bases = false
heading_level = 2
separate_signature = true
show_signature_annotations = true
members_order = "source"
extensions = [{extension}]

[project.markdown_extensions.admonition]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.md_in_html]
[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
"""


def list_files() -> dict[Path, Path]:
    """Each file of the repository that the site shows, and its place there."""
    files = {path: path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.is_file()}
    for path in (*(ROOT / "results").glob("*.md"), *(ROOT / "results").glob("figures/*.svg")):
        files[path] = path.relative_to(ROOT)
    for path in (*(ROOT / "results" / "tables").glob("*.md"), *(ROOT / "examples").glob("*.*")):
        files[path] = path.relative_to(ROOT)
    for folder in ("examples", "results"):
        files[ROOT / folder / "README.md"] = Path(folder, "index.md")
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        files[ROOT / f"{name}.md"] = Path(f"{name.lower()}.md")
    return {path: place for path, place in files.items() if path.is_file()}


def find_links(text: str) -> list[re.Match[str]]:
    """The links and pictures of a Markdown text, without those in code."""
    blank = CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), text)
    return list(LINK.finditer(blank))


def move_links(text: str, page: Path, files: dict[Path, Path]) -> str:
    """The text with links from `page` as links between places of the site; words alone where there is no such place."""
    parts, end = [], 0
    for link in find_links(text):
        target = (page.parent / link["target"]).resolve()
        if not link["target"] or "://" in link["target"] or link["target"].startswith("mailto:"):
            continue
        if target in files:
            place = Path(os.path.relpath(files[target], files[page].parent)).as_posix()
            parts += [text[end : link.start("target")], place]
            end = link.end("target")
        else:
            parts += [text[end : link.start()], text[link.start("text") : link.end("text")]]
            end = link.end()
    return "".join(parts) + text[end:]


def list_rooms() -> dict[str, list[str]]:
    """The public names of every room that has some, read from the source without importing it."""
    rooms = {}
    for file in (*SOURCE.glob("[a-z]*.py"), *SOURCE.glob("[a-z]*/__init__.py")):
        room = file.parent.name if file.name == "__init__.py" else file.stem
        if names := list_names(ast.parse(file.read_text(encoding="utf-8"))):
            rooms[room] = names
    return {room: rooms[room] for room in sorted(rooms) if room != "cli"}


def list_names(module: ast.Module) -> list[str]:
    """`__all__`, or for a file without it every class, function and constant that is not private."""
    names = []
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported: list[str] = ast.literal_eval(node.value)
            return exported
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names.append(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    return [name for name in names if name.isidentifier() and not name.startswith("_")]


def make_reference(pages: Path) -> list[dict[str, str]]:
    """Write a page for each room, and return its lines of the menu."""
    (pages / "api").mkdir(parents=True)
    menu = []
    for room, names in list_rooms().items():
        more = f"What it is for: [{room}](../{room}.md).\n\n" if (pages / f"{room}.md").is_file() else ""
        members = "".join(f"\n        - {name}" for name in names)
        text = f"# shiftprism.{room}\n\n{more}::: shiftprism.{room}\n    options:\n      members:{members}\n"
        (pages / "api" / f"{room}.md").write_text(text, encoding="utf-8")
        menu.append({room: f"api/{room}.md"})
    return menu


def make_menu(pages: Path, reference: list[dict[str, str]]) -> list[dict[str, object]]:
    """Titles and pages, as zensical's `nav` has them."""

    def items(names: tuple[str, ...]) -> list[str]:
        return [f"{name}.md" for name in names if (pages / f"{name}.md").is_file()]

    named = {name for names in (*SECTIONS.values(), LAST) for name in names} | {"index", "findings"}
    others = sorted(path.name for path in pages.glob("*.md") if path.stem not in named and path.stem.islower())
    project = [name for name in ("changelog.md", "contributing.md", "security.md") if name in others]
    tables = sorted(f"results/tables/{path.name}" for path in (pages / "results" / "tables").glob("*.md"))
    results = sorted(f"results/{path.name}" for path in (pages / "results").glob("*.md") if path.stem != "index")
    sections: list[dict[str, object]] = [{title: items(names)} for title, names in SECTIONS.items()]
    return [
        {"Start": "index.md"},
        {"Guides": ["guides/index.md", *items(tuple(f"guides/{name}" for name in GUIDES)), "examples/index.md"]},
        *sections,
        {"API": reference},
        {"Results": [*items(("findings",)), "results/index.md", *results, {"All tables": tables}]},
        {"About": [*items(LAST), *project, *(name for name in others if name not in project)]},
    ]


def to_toml(value: object) -> str:
    """The value as TOML in one line: JSON but for the pairs of a table."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {to_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(one) for one in value) + "]"
    return json.dumps(value)


def stage(build: Path) -> Path:
    """Write the pages and zensical's configuration to a folder; the configuration's path."""
    shutil.rmtree(build, ignore_errors=True)
    files, pages = list_files(), build / "pages"
    for path, place in files.items():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            moved = move_links(path.read_text(encoding="utf-8"), path, files)
            (pages / place).write_text(moved, encoding="utf-8")
        else:
            shutil.copyfile(path, pages / place)
    menu = make_menu(pages, make_reference(pages))
    config = build / "zensical.toml"
    paths = {"source": str(SOURCE.parent), "extension": str(ROOT / "tools" / "site_examples.py")}
    text = CONFIG.format(nav=to_toml(menu), **{name: json.dumps(path) for name, path in paths.items()})
    config.write_text(text, encoding="utf-8")
    return config


def write_names() -> str:
    """The public names of all rooms, a room a line: what the deprecation policy freezes."""
    rooms = {"shiftprism": list_names(ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))), **list_rooms()}
    return "".join(f"{room}: {' '.join(sorted(names))}\n" for room, names in rooms.items())


def main() -> None:
    if "--names" in sys.argv:
        (ROOT / "tests" / "public_names.txt").write_text(write_names(), encoding="utf-8")
        return
    config = stage(ROOT / "build")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    done = subprocess.run(command, cwd=config.parent, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    shutil.move(config.parent / "site", ROOT / "site")
    print("the site: site/index.html")


if __name__ == "__main__":
    main()
