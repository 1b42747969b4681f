"""Formulas of pages, `$…$` and `$$…$$`, as MathML, which browsers draw without a script.

The part of TeX that the proofs use, and nothing else: an unknown command stops the build.
"""

import html
import re
from pathlib import Path

__all__ = ["FormulaStore", "convert_formula"]

# Characters for private use: no generator changes them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", flags=re.DOTALL)
# Fenced blocks and code spans are left as they are.
_PIECE = re.compile(
    r"(?P<code>^ *```.*?^ *```$|(?P<ticks>`+)[^`].*?(?P=ticks))"
    r"|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$\n][^$]*?)\$",
    flags=re.DOTALL | re.MULTILINE,
)
_GREEK = """alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho
varsigma sigma tau upsilon varphi chi psi omega"""
_LETTERS = {
    **{name: chr(0x3B1 + place) for place, name in enumerate(_GREEK.split())},
    "Delta": "Δ",
    "Gamma": "Γ",
    "Theta": "Θ",
    "Lambda": "Λ",
    "Phi": "Φ",
    "ell": "ℓ",
    "infty": "∞",
    "partial": "∂",
    "emptyset": "∅",
    "top": "⊤",
}
_OPERATORS = {
    "le": "≤",
    "ge": "≥",
    "ne": "≠",
    "cdot": "·",
    "in": "∈",
    "ni": "∋",
    "pm": "±",
    "mp": "∓",
    "dots": "…",
    "ldots": "…",
    "cdots": "⋯",
    "otimes": "⊗",
    "oplus": "⊕",
    "propto": "∝",
    "mid": "∣",
    "sim": "∼",
    "approx": "≈",
    "setminus": "∖",
    "mapsto": "↦",
    "to": "→",
    "succ": "≻",
    "subseteq": "⊆",
    "supseteq": "⊇",
    "cup": "∪",
    "cap": "∩",
    "circ": "∘",
    "times": "×",
    "gg": "≫",
    "ll": "≪",
    "int": "∫",
    "bmod": "mod",
    "lfloor": "⌊",
    "rfloor": "⌋",
    "lceil": "⌈",
    "rceil": "⌉",
    "langle": "⟨",
    "rangle": "⟩",
    "lvert": "|",
    "rvert": "|",
    "lVert": "‖",
    "rVert": "‖",
    "|": "‖",
    "{": "{",
    "}": "}",
    "%": "%",
    "_": "_",
}
_PLAIN = {"-": "−", "*": "∗"}
_LARGE = {"sum": "∑", "prod": "∏", "bigotimes": "⨂"}
_WORDS = {"Pr", "ln", "log", "exp", "sinh", "cosh", "tanh", "sin", "cos"}
_WORDS_WITH_LIMITS = {"max", "min", "sup", "inf"}
_SPACES = {",": "0.17em", ";": "0.28em", " ": "0.3em", "!": "-0.17em", "quad": "1em", "qquad": "2em"}
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~"}
_SIZES = {"big", "Big", "bigl", "bigr", "Bigl", "Bigr"}
_BLACKBOARD = {"E": "𝔼", "N": "ℕ", "P": "ℙ", "R": "ℝ", "Z": "ℤ"}
_ALPHABETS: dict[str, dict[str, str]] = {"mathbb": _BLACKBOARD, "mathrm": {}, "mathtt": {}, "mathbf": {}}
_MINUS = "<mo>−</mo>"
_THIN_SPACE = '<mspace width="0.17em"></mspace>'
_BEFORE_A_SIGN = tuple(f">{html.escape(mark)}</mo>" for mark in "([{,=<>≤≥·+−→∈/")
_AFTER_A_WORD = {"", *"([{}]),", *(f"\\{name}" for name in (*_SIZES, "left", "right"))}
_BREAKS = {f"<mo>{mark}</mo>" for mark in ("=", "≤", "≥", "&lt;", "&gt;", "≠", "∼", "≈", "∈", "→", ",")}


class FormulaStore:
    """Keeps formulas while the generator reads pages: to Markdown each is one short word."""

    def __init__(self) -> None:
        self._formulas: list[str] = []

    def take_out(self, text: str) -> str:
        """A page with a mark in place of each formula outside of code."""

        def mark(match: re.Match[str]) -> str:
            if match["code"]:
                return match["code"]
            is_display = match["display"] is not None
            tex = match["display"] if is_display else match["inline"]
            self._formulas.append(convert_formula(tex, is_display=is_display))
            return f"{_OPEN}{len(self._formulas) - 1}{_CLOSE}"

        return _PIECE.sub(mark, text)

    def put_back(self, site: Path) -> None:
        """Replace the marks in the pages of a site by MathML, in its search by the formula's text."""
        # The search shows pieces of HTML, from JSON; without tags, no formula has a quote or a backslash.
        plain = [re.sub(r"<[^>]+>", "", formula) for formula in self._formulas]
        for ending, formulas in (("html", self._formulas), ("json", plain)):
            for path in site.rglob(f"*.{ending}"):
                text = path.read_text(encoding="utf-8")
                if _OPEN in text:
                    pieces = _MARK.split(text)
                    pieces[1::2] = [formulas[int(number)] for number in pieces[1::2]]
                    path.write_text("".join(pieces), encoding="utf-8")


def convert_formula(tex: str, *, is_display: bool = False) -> str:
    """A formula as one MathML element.

    Args:
        tex: The formula without its dollar signs.
        is_display: A formula on lines of its own; sums then have their limits below and above.
    """
    items = _Parser(tex, is_display=is_display).items()
    if is_display:
        return f'<math display="block">{_join(items)}</math>'
    # Browsers do not break lines within a formula, but between two: each relation ends one.
    parts: list[list[str]] = [[]]
    for item in items:
        is_break = item in _BREAKS
        parts[-1].append(item.replace("<mo>", '<mo form="infix">') if is_break else item)
        parts += [[]] if is_break else []
    return "<wbr>".join(f"<math>{_join(part)}</math>" for part in parts if part)


class _Parser:
    """Reads a formula from left to right."""

    def __init__(self, tex: str, *, is_display: bool) -> None:
        self._tex = tex
        self._tokens = [token for token in _TOKEN.findall(tex) if not token.isspace()]
        self._at = 0
        self._is_display = is_display

    def items(self, until: str = "") -> list[str]:
        """All that follows, up to a closing token."""
        collected: list[str] = []
        while self._peek() != until:
            first = self._peek()
            if not first:
                self._fail(f"{until} is missing")
            is_word = first[1:] in _WORDS | _WORDS_WITH_LIMITS
            item = self._scripted()
            if item == _MINUS and (not collected or collected[-1].endswith(_BEFORE_A_SIGN)):
                item = item.replace("<mo>", '<mo form="prefix">')  # a sign: no space after it
            if is_word and collected and not collected[-1].startswith(("<mo", "<mspace")):
                collected.append(_THIN_SPACE)
            collected.append(item)
            if is_word and self._peek() not in _AFTER_A_WORD:
                collected.append(_THIN_SPACE)
        self._at += 1
        return collected

    def _scripted(self) -> str:
        """One item with what hangs below and above it."""
        first = self._peek()
        base = self._item()
        below = above = ""
        while (mark := self._peek()) in {"_", "^", "'"}:
            if mark == "'":
                above += "<mo>′</mo>"
                self._at += 1
                continue
            self._at += 1
            script = self._argument()
            if mark == "_":
                below += script
            else:
                above += script
        above = f"<mrow>{above}</mrow>" if above.count("<mo>′</mo>") and above != "<mo>′</mo>" else above
        if not below and not above:
            return base
        name = first.removeprefix("\\")
        is_large = name in _LARGE or name in _WORDS_WITH_LIMITS
        low, high = (
            ("under", "over") if name == "underbrace" or (is_large and self._is_display) else ("sub", "sup")
        )
        tag = f"m{low * bool(below)}{high * bool(above)}"
        return f"<{tag}>{base}{below}{above}</{tag}>"

    def _item(self) -> str:
        text = self._next()
        if text.startswith("\\"):
            return self._command(text[1:])
        if text[0].isdigit():
            return f"<mn>{text}</mn>"
        if text.isalpha():
            return f"<mi>{text}</mi>"
        return _join(self.items(until="}")) if text == "{" else _operator(_PLAIN.get(text, text))

    def _argument(self) -> str:
        """What a command or a script takes: one item, and of a number its first digit."""
        token = self._peek()
        if len(token) > 1 and token[0].isdigit():
            self._tokens[self._at : self._at + 1] = [token[0], token[1:]]
        return self._item()

    def _command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return _operator(_OPERATORS[name])
        if name in _LARGE:
            return f"<mo>{_LARGE[name]}</mo>"
        if name in _WORDS or name in _WORDS_WITH_LIMITS:
            return f"<mi>{name}</mi>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _SIZES:  # brackets of one size: without a font for formulas, browsers stretch them badly
            return self._item()
        if name in {"left", "right"}:
            return self._item().replace(' stretchy="false"', ' stretchy="true"')
        if name in _ACCENTS:
            return f'<mover accent="true">{self._argument()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name in {"frac", "tfrac"}:
            size = ' displaystyle="false" scriptlevel="+1"' if name == "tfrac" and self._is_display else ""
            return f"<mfrac{size}>{self._argument()}{self._argument()}</mfrac>"
        if name == "binom":
            over = f'<mfrac linethickness="0">{self._argument()}{self._argument()}</mfrac>'
            return f"<mrow><mo>(</mo>{over}<mo>)</mo></mrow>"
        if name == "sqrt":
            return f"<msqrt>{self._argument()}</msqrt>"
        if name == "underbrace":
            return f"<munder>{self._argument()}<mo>⏟</mo></munder>"
        if name in {"text", "operatorname"}:
            return f"<mtext>{html.escape(self._words())}</mtext>"
        if name == "tag":
            return f'<mspace width="2em"></mspace><mtext>({html.escape(self._words())})</mtext>'
        if name in _ALPHABETS:
            letters = self._words()
            return f"<mi>{_ALPHABETS[name].get(letters, html.escape(letters))}</mi>"
        return self._fail(f"unknown command \\{name}")

    def _words(self) -> str:
        """The text of an argument, spaces kept; it holds no commands."""
        if self._peek() != "{":
            return self._next()
        close = self._tokens.index("}", self._at)
        inside = self._tokens[self._at + 1 : close]
        self._at = close + 1
        # Spaces are no tokens: look the text up where it stands in the formula.
        pattern = r"\{(\s*" + r"\s*".join(map(re.escape, inside)) + r"\s*)\}"
        place = re.search(pattern, self._tex)
        if place is None:
            self._fail("a text without its end")
        return place[1] if place else ""

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at == len(self._tokens):
            self._fail("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _fail(self, why: str) -> str:
        raise ValueError(f"formula ${self._tex}$: {why}")


def _join(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"<mrow>{''.join(items)}</mrow>"


def _operator(text: str) -> str:
    # A bar may open or close: it must not be stretched, nor spaced, as one or the other.
    kind = ' stretchy="false"' if text in "|‖∣()[]⌊⌋⌈⌉⟨⟩{}" else ""
    kind += ' lspace="0" rspace="0"' if text in "|‖/" else ""
    return f"<mo{kind}>{html.escape(text)}</mo>"
