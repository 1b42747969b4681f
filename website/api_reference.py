"""The API reference: every public name with its signature, its docstring, its guarantee and its proof."""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["PACKAGES", "list_public_names", "write_api_pages"]

PACKAGES = {
    "hubbub": "Queries, mechanisms, budgets and releases: what most programs need.",
    "hubbub.mechanisms": "Noise, selection, partition selection, sparse vector and randomized response.",
    "hubbub.accounting": "Privacy losses, composition, filters, odometers and calibration.",
    "hubbub.sql.plan": "Plans: what a query will cost and how wrong it will be.",
    "hubbub.sql.result": "Released tables, with their intervals.",
    "hubbub.ledger": "Durable accounts.",
    "hubbub.engines": "Tables as engines see them: columns and their kinds.",
    "hubbub.training": "DP-SGD in torch.",
    "hubbub.estimators": "Estimators with scikit-learn's interface.",
    "hubbub.audit": "Lower bounds of ε, by experiment.",
    "hubbub.errors": "Everything that hubbub raises.",
    "hubbub.noise": "Exact samplers.",
}
_ARGUMENT = re.compile(r"^ {4}(\*{0,2}\w+)(?: \(.*?\))?: (.*)")
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Guarantee|Assumes|Proof|Example|Examples|Note):[ \t]*")
_PROOF = re.compile(r"docs/(proofs/[a-z-]+\.md)")


def write_api_pages(folder: Path) -> None:
    """Write a page for each public package.

    Args:
        folder: where the pages go; it is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for package, about in PACKAGES.items():
        module = importlib.import_module(package)
        names = sorted(list_public_names(module), key=lambda name: (not name[0].isupper(), name.lower()))
        parts = [f"# `{package}`", about, _overview(module, names)]
        for name in names:
            home = _find_home(package, name)
            parts += [f"## `{name}`"]
            parts += (
                [f"Described in [`{home}`]({home}.md#{name.lower()})."]
                if home != package
                else _describe(package, name, getattr(module, name))
            )
        (folder / f"{package}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def list_public_names(module: ModuleType) -> list[str]:
    """The names that a package offers, without those of packages inside it."""
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


def _find_home(package: str, name: str) -> str:
    """The page that describes a name: `hubbub` offers names of other packages, too."""
    others = [
        other for other in PACKAGES if other != "hubbub" and name in importlib.import_module(other).__all__
    ]
    return others[0] if package == "hubbub" and others else package


def _overview(module: ModuleType, names: list[str]) -> str:
    """A table of all names: what each is, and where its guarantee is proved."""
    rows = ["| name | what it is | proof |", "|---|---|---|"]
    for name in names:
        value = getattr(module, name)
        text = (inspect.getdoc(value) or "") if inspect.isclass(value) or inspect.isroutine(value) else ""
        first = re.split(r"\n\n|(?<=[.])\s", text.replace("|", "\\|"), maxsplit=1)[0].replace("\n", " ")
        first = first or f"`{value!r}`"
        place = _PROOF.search(text) or _PROOF.search("\n".join(_member_docstrings(value)))
        proof = f"[{Path(place[1]).stem}](../{place[1]})" if place else ""
        rows.append(f"| [`{name}`](#{name.lower()}) | {first} | {proof} |")
    return "\n".join(rows)


def _member_docstrings(value: Any) -> list[str]:
    if not inspect.isclass(value):
        return []
    return [inspect.getdoc(_function(member)) or "" for _, member in _public_members(value)]


def _describe(package: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) or inspect.isroutine(value):
        yield _signature(f"{package}.{name}", value)
        yield _render_docstring(value)
    else:
        yield f"```py\n{name} = {value!r}\n```"
    if inspect.isclass(value):
        for member, function in _public_members(value):
            yield f"### `{name}.{member}`"
            target = function.__func__ if isinstance(function, classmethod | staticmethod) else function
            if inspect.isroutine(target):
                yield _signature(f"{name}.{member}", target)
            yield _render_docstring(target)


def _public_members(owner: type) -> list[tuple[str, Any]]:
    """Methods and properties with a docstring, inherited ones of hubbub included, in their order."""
    members: dict[str, Any] = {}
    for parent in reversed(owner.__mro__):
        if parent.__module__.startswith("hubbub"):
            members |= {
                name: value
                for name, value in vars(parent).items()
                if not name.startswith("_") and (callable(value) or _is_descriptor(value))
            }
    documented = {name: value for name, value in members.items() if inspect.getdoc(_function(value))}
    return [(name, value) for name, value in documented.items() if not inspect.isclass(value)]


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, classmethod | staticmethod | property) or hasattr(value, "func")


def _function(value: Any) -> Any:
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return getattr(value, "func", value)


def _signature(name: str, value: Any) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    signature = re.sub(r"hubbub(\.[a-z_]+)*\.(?=[A-Z])", "", signature).replace("'", "").replace('"', "")
    signature = re.sub(r"<factory>|<[^<>]* at 0x[0-9a-f]+>", "…", signature)
    text = f"{name}{signature}"
    if len(text) > 100:
        inside = re.sub(r", (?=[*\w]+(:|=|,|\)|$))", ",\n    ", signature[1 : signature.rindex(")")])
        text = f"{name}(\n    {inside},\n){signature[signature.rindex(')') + 1 :]}"
    return f"```py\n{text}\n```"


def _render_docstring(value: Any) -> str:
    """A docstring as Markdown: sections in bold, arguments as a list, doctests as code, proofs as links."""
    own = dataclasses.is_dataclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}(")
    text = "" if own else inspect.getdoc(_function(value)) or ""
    lines: list[str] = []
    section, in_code = "", False
    for line in text.splitlines():
        starts = _SECTION.match(line)
        is_code = line.lstrip().startswith((">>>", "...")) or (in_code and bool(line.strip()))
        if is_code != in_code:
            lines += ["```pycon"] if is_code else ["```", ""]
            in_code = is_code
        if is_code:
            lines.append(line)
        elif starts:
            section = starts[1]
            lines += ["", f"**{section}** {line[starts.end() :]}".rstrip()]
            lines += [""] if section in {"Args", "Raises"} else []
        elif section in {"Args", "Raises"} and (item := _ARGUMENT.match(line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        else:
            lines.append(line if not line.startswith("    ") or not section else f"  {line.strip()}")
    if in_code:
        lines.append("```")
    return _PROOF.sub(lambda match: f"[{match[1]}](../{match[1]})", "\n".join(lines).strip())
