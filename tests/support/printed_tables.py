"""Line tables as programs print them."""

import re


def rows(text, name):
    """{code: [values]} of the table called NAME, of those lines that ran."""
    body = re.search(rf"^## {re.escape(name)}\n\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    found = {}
    for line in body[1].split("\n")[3:]:
        match = re.match(r"^ *(?:(\S+) +(\S+) +)(\d+)  (.*?) *$", line)
        if match:
            found[match[4].strip()] = [match[1], match[2]]
    return found
