"""What the documentation's tests share: its pages, their prose, and their fenced blocks."""
import os
import pathlib
import re
import subprocess

SOURCE = pathlib.Path(os.environ.get("FARANDOLE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
LAYERS = SOURCE / "src" / "farandole"
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]


class Block:
    """A fenced block: its language with what follows it, its lines, and where the first of them is."""

    def __init__(self, page, language, first_line):
        self.page, self.language, self.first_line, self.lines = page, language, first_line, []


def read_page(page):
    """The page's lines as (number, text) without fenced blocks, and its blocks."""
    prose, blocks, block = [], [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            if block is None:
                block = Block(page, line.strip("` "), number + 1)
            else:
                blocks.append(block)
                block = None
        elif block is None:
            prose.append((number, line))
        else:
            block.lines.append(line)
    assert block is None, f"{page}: the block from line {block.first_line} on has no end"
    return prose, blocks


def help_of(program, *words):
    text = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=30).stdout
    if "--help all" not in text:
        return text
    return subprocess.run([program, *words, "--help", "all"], capture_output=True, text=True, timeout=30).stdout


def options_in(text):
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))
