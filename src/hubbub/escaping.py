"""Text that is not ours, as people may be shown it: nothing in it steers a terminal, or looks like our words.

Names, keys, queries and paths come from data, from analysts and from whoever made a file. A letter that
cannot be seen (a control character, one that turns the direction of writing, a line's end) is shown as its
escape.
"""

import json

__all__ = ["escape", "escape_json", "escape_lines"]


def escape(text: object) -> str:
    r"""The text in one line, with what cannot be seen as escapes.

    >>> escape("a" + chr(27) + "[2J" + chr(0x202E) + chr(10))
    'a\\x1b[2J\\u202e\\n'
    """
    given = str(text)
    if given.isprintable():
        return given
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in given)


def escape_lines(text: object) -> str:
    r"""As `visible`, of a text whose lines are ours.

    >>> escape_lines("one" + chr(10) + chr(9) + "two")
    'one\n\\ttwo'
    """
    return "\n".join(escape(line) for line in str(text).split("\n"))


def escape_json(text: str) -> str:
    r"""JSON that means the same, with what cannot be seen escaped: it can only be within strings.

    >>> escape_json(json.dumps(chr(0x9B) + "é", ensure_ascii=False))
    '"\\u009bé"'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
