"""The beginning of a page of one picture and a table, which needs no other file and no script.

Owns what such pages have in common; a page closes body and html itself.
"""

from html import escape

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 1200px;
  padding: 0 1em; }}
pre {{ font-size: 13px; overflow-x: auto; }}
svg {{ width: 100%; height: auto; }}
.key span {{ display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.4em 0 1.2em; }}
{style}</style>
</head>
<body>
"""


def head(title: str, style: str) -> str:
    """A page's HTML up to its body, of a TITLE, with rules of STYLE, CSS, of its own."""
    return _HEAD.format(title=escape(title), style=style)
