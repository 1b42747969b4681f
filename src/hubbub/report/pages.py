"""HTML pages that stand alone: no other host, no script, dark and light, for A4; text in Markdown."""

import html

from hubbub.escaping import escape

__all__ = ["html_text", "markdown_text", "render_page"]

_LIGHT = (
    "--ink:#1b1f24;--muted:#57606a;--line:#d8dee4;--paper:#fff;--card:#f6f8fa;--accent:#0b5cad;"
    "--accent-soft:#dbeafe;--warn:#9a3412"
)
_DARK = (
    "--ink:#e6edf3;--muted:#9aa4af;--line:#30363d;--paper:#0f1318;--card:#171c23;--accent:#79b8ff;"
    "--accent-soft:#12304f;--warn:#ffb38a"
)
_STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--paper);color:var(--ink);overflow-wrap:break-word;"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif}"
    "main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 3rem}"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:2px solid var(--ink)}"
    "h3{font-size:1rem;margin:1.2rem 0 .3rem}"
    "p{margin:.4rem 0}a{color:var(--accent)}"
    ".muted,figcaption{color:var(--muted)}.small{font-size:.87rem}"
    ".kicker{color:var(--muted);font-size:.8rem;letter-spacing:.06em;text-transform:uppercase;margin:0}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(12rem,1fr));gap:.75rem;margin:1rem 0}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem .9rem}"
    ".card b{display:block;font-size:1.3rem;line-height:1.3;overflow-wrap:anywhere}"
    ".card b span{white-space:nowrap}.card>span{color:var(--muted);font-size:.87rem}"
    ".promise{border-left:4px solid var(--accent);background:var(--card);padding:.8rem 1rem;margin:1rem 0}"
    ".promise h2{font-size:1rem;margin:0 0 .3rem;padding:0;border:0}"
    "dl{display:grid;grid-template-columns:minmax(9rem,14rem) 1fr;gap:.3rem 1rem;margin:.5rem 0}"
    "dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}"
    "table{border-collapse:collapse;width:100%;margin:.6rem 0;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--line)}"
    "th{font-weight:600;border-bottom:2px solid var(--line)}td.number,th.number{text-align:right}"
    "td.interval{color:var(--muted);white-space:nowrap}"
    "code,pre{font:.87rem/1.45 ui-monospace,SFMono-Regular,Menlo,'Liberation Mono',monospace;"
    "overflow-wrap:anywhere;white-space:pre-wrap}"
    ".question{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.5rem .7rem;"
    "margin:.4rem 0;display:block}"
    "article.release{border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;margin:.8rem 0}"
    "article.release h3{margin:0 0 .3rem}"
    "figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}.wide{overflow-x:auto}"
    # On a phone names are above what they name, and pictures keep a size that can be read, and scroll.
    "@media screen and (max-width:40rem){dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .6rem}"
    "svg{max-width:none}}"
    "footer{margin-top:2.5rem;padding-top:.8rem;border-top:1px solid var(--line);color:var(--muted);"
    "font-size:.87rem}"
    "@page{size:A4;margin:16mm 15mm}"
    f"@media print{{:root{{color-scheme:light;{_LIGHT}}}main{{max-width:none;padding:0}}"
    "body{font-size:10pt}h2{break-after:avoid}h3{break-after:avoid}"
    ".cards{grid-template-columns:repeat(auto-fit,minmax(9rem,1fr))}.card b{font-size:1rem}"
    ".card,article.release,figure,tr,.promise{break-inside:avoid}.wide{overflow:visible}a{color:inherit}}"
)


def html_text(text: object) -> str:
    """Return untrusted text on one line, with unprintable characters and markup escaped.

    >>> html_text("<b>")
    '&lt;b&gt;'
    """
    return html.escape(escape(text))


_MARKS = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "\\`*_[]|~#$"}, "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)


def markdown_text(text: object) -> str:
    r"""Return text in Markdown that is nothing but text: no link, no picture, no cell, no address to click.

    >>> markdown_text("![a](http://b) | <i>")
    '!\\[a\\](http&#58;//b) \\| &lt;i&gt;'
    """
    plain = escape(text).translate(_MARKS)
    return plain.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def render_page(title: str, body: str) -> str:
    """Return a whole HTML page.

    Args:
        title: the title, as text.
        body: the content, as HTML.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
