"""Rejects the terms of tools/words.txt in what people read: docs, text and comments of the
sources.

    tools/words.py [FILE...]

A line of words.txt has a term and what to say instead, with a tab between.  Of sources the
comments and strings are read, of Markdown all but code.  Prints each term that is found, with
its file and line, and ends with status 1.
"""

import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Read without arguments.
PATHS = ("*.md", "docs", "csrc", "memlab", "pytest_memlab.py")
# Old wording stays.
HISTORY = {"CHANGELOG.md"}
C_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
# No comments: a template may hold // within a URL.
JS_TEXT = re.compile(r'/\*.*?\*/|(?:^|\s)//[^\n]*|"[^"\n]*"|`[^`]*`', re.DOTALL)
MARKDOWN_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def read_terms():
    """[(expression, replacement)]"""
    terms = []
    for line in (ROOT / "tools" / "words.txt").read_text().splitlines():
        if line and line[0] != "#":
            term, instead = line.split("\t")
            # A line may end between words, and the next may begin like a comment's.
            pattern = r"[\s*#\"]+".join(map(re.escape, term.split()))
            terms.append((re.compile(rf"\b{pattern}\b", re.IGNORECASE), term, instead))
    return terms


def kept(text, expression):
    """The matches of EXPRESSION in TEXT, at their lines."""
    out, at = [], 0
    for match in expression.finditer(text):
        out += ["\n" * text.count("\n", at, match.start()), " ", match[0]]
        at = match.end()
    return "".join(out)


def python_text(path):
    """The comments and strings of the file at PATH, at their lines."""
    lines = [""] * (len(path.read_text().splitlines()) + 2)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            middle = getattr(tokenize, "FSTRING_MIDDLE", None)
            if token.type in (tokenize.COMMENT, tokenize.STRING, middle):
                for i, line in enumerate(token.string.splitlines()):
                    lines[token.start[0] - 1 + i] += " " + line
    return "\n".join(lines)


def text_of(path):
    """The text that people read in the file at PATH, at its lines."""
    if path.suffix in (".py", ".pyi"):
        return python_text(path)
    text = path.read_text()
    if path.suffix == ".md":
        return MARKDOWN_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return kept(text, JS_TEXT if path.suffix == ".js" else C_TEXT)


def files():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *PATHS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout
    known = {".md", ".c", ".h", ".cpp", ".def", ".py", ".pyi", ".js"}
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix in known and path.is_file() and name not in HISTORY:
            yield path


def main(arguments):
    terms = read_terms()
    failed = False
    for path in map(Path, arguments) if arguments else files():
        text = text_of(path)
        for expression, term, instead in terms:
            for match in expression.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                print(f'{path}:{line}: "{term}": say "{instead}"', file=sys.stderr)
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
