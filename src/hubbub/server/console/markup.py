"""HTML that cannot be injected into: text is escaped, and only what `element` made is not."""

import html

__all__ = ["Html", "element", "escape", "join"]

_VOID = {"br", "hr", "img", "input", "link", "meta"}


class Html(str):
    """A piece of HTML; every other text is escaped where it is put into one."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Return a text as HTML; what is HTML already stays as it is.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def join(*children: object) -> Html:
    """Return several pieces as one; lists are flattened, None is left out."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, (list, tuple)):
            parts.append(join(*child))
        else:
            parts.append(escape(child))
    return Html("".join(parts))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: of the element.
        children: texts, which are escaped, and elements.
        attributes: without those that are None or False; `class_` is class, `hx_post` is hx-post.

    >>> element("a", "<home>", href="/", class_="link")
    '<a href="/" class="link">&lt;home&gt;</a>'
    """
    stated = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{stated}>")
    return Html(f"<{name}{stated}>{join(*children)}</{name}>")
