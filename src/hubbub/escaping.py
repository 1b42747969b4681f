"""Escaping of untrusted text for display, so that it cannot control a terminal or imitate our messages.

Names, keys, queries and paths come from data, analysts and files. Characters that cannot be printed (control
characters, changes of writing direction, line ends) are shown as escapes.
"""

import json

__all__ = ["escape", "escape_json", "escape_lines"]


def escape(text: object) -> str:
    r"""Return the text on one line, with unprintable characters escaped.

    >>> escape("a" + chr(27) + "[2J" + chr(0x202E) + chr(10))
    'a\\x1b[2J\\u202e\\n'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in plain)


def escape_lines(text: object) -> str:
    r"""Escape each line of a text and keep its line breaks.

    >>> escape_lines("one" + chr(10) + chr(9) + "two")
    'one\n\\ttwo'
    """
    return "\n".join(escape(line) for line in str(text).split("\n"))


def escape_json(text: str) -> str:
    r"""Return equivalent JSON with unprintable characters escaped; they can occur only within strings.

    >>> escape_json(json.dumps(chr(0x9B) + "é", ensure_ascii=False))
    '"\\u009bé"'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
