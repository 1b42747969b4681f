"""A label as a page, as Markdown, as text and as YAML: the same facts for readers and for records.

A page stands alone: no script, no other host, no link into a source tree. Fields that the owner did not state
are one line at its end.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.escaping import escape, escape_json
from hubbub.report.pages import html_text, markdown_text, render_page
from hubbub.report.registry import NOT_STATED

__all__ = ["label_html", "label_markdown", "label_text", "label_yaml"]

_SECTIONS = {"deployment": "Deployment (OpenDP registry)", "NIST SP 800-226": "Guarantee (NIST SP 800-226)"}
_VERIFY = "hubbub report verify FILE.json recomputes every ε of this label from its mechanisms."

Facts = Mapping[str, Any]


def _price(figures: Mapping[str, str]) -> str:
    delta = figures["delta"]
    return f"ε = {figures['epsilon']}" + (f", δ = {delta}" if delta != "0" else "")


def _overview(facts: Facts) -> list[tuple[str, str]]:
    """The facts of the account, a line each."""
    lines = [
        ("protected", f"one {facts['unit']} ({facts['neighbours']}). {facts['unit description']}"),
        ("from whom", facts["from whom"]),
        ("model", f"{facts['model']}, {facts['definition']}"),
        ("promised", _price(facts["promise"])),
        ("spent so far", _price(facts["spent"])),
        ("left", f"one more release may cost {_price(facts['left'])}"),
        ("composition", facts["composition"]),
    ]
    lines += [("lifetime", facts["lifetime"])] if "lifetime" in facts else []
    lines += [
        ("analyst", f"{who} may spend {_price(theirs)}") for who, theirs in facts.get("analysts", {}).items()
    ]
    lines += [("dataset", f"{name}, alone: ε = {epsilon}") for name, epsilon in facts["datasets"].items()]
    lines += [("versions", ", ".join(facts["versions"]))] if facts["versions"] else []
    lines.append(("non-private accesses", _accesses(facts)))
    lines += [("asserted by the owner", word) for word in facts["owner assertions"]]
    return [*lines, *([("closed", "nothing more is charged to the account")] if facts["closed"] else [])]


def _accesses(facts: Facts) -> str:
    times = [when[:16].replace("T", " ") for when in facts["times of non-private accesses"]]
    if not times:
        return "none are recorded"
    last = f", the last at {times[-1]} UTC" if len(times) > 1 else f", at {times[-1]} UTC"
    return f"{len(times)} by the owner, who saw answers without noise{last}"


def _release_lines(release: Facts) -> list[tuple[str, str]]:
    """The way in which a release was made, one line each."""
    at = f" at δ = {release['delta']}" if release["delta"] != "0" else ""
    cost = f"ε = {release['epsilon']}{at}"
    lines = [("cost", cost if release["loss"] == cost else f"{cost} ({release['loss']})")]
    for part in release["plan"]:
        lines += [("mechanism", text) for text in part["mechanisms"]]
        bounds = part["contribution bounds"]
        lines.append(
            (
                "contribution bounds",
                ", ".join(f"{name}: {limit}" for name, limit in bounds.items()) or "none needed",
            )
        )
        lines.append(("keys", part["keys"]))
        clamping = part["clamping bounds"]
        if clamping:
            lines.append(
                (
                    "clamping bounds",
                    ", ".join(f"{name}: {' to '.join(ends)}" for name, ends in clamping.items()),
                )
            )
        sure = f" ({100 * part['confidence']:g} %)" if "confidence" in part else ""
        lines += [("error", f"{name}: {error}{sure}") for name, error in part.get("errors", {}).items()]
    lines.append(("answer", "stored in the ledger" if release["answer stored"] else "not stored"))
    return lines


def _statements(section: Facts, within: str = "") -> list[tuple[str, str]]:
    """The fields of a registry that have a value."""
    lines = []
    for field, value in section.items():
        if isinstance(value, Mapping) and field not in {"privacy_parameters", "bound_on_output_distance"}:
            lines += _statements(value, f"{field}_")
            continue
        name = f"{within}{field}" if field == "name" else field
        text = _price(value) if isinstance(value, Mapping) else str(value)
        if text and NOT_STATED not in text:
            lines.append((name.replace("_", " "), text))
        elif NOT_STATED in text and text != NOT_STATED:  # half of it is known
            lines.append((name.replace("_", " "), text.partition(" Others:")[0]))
    return lines


def _footer(facts: Facts) -> list[str]:
    lines = [f"Not stated by the owner: {', '.join(facts['not stated'])}."] if facts["not stated"] else []
    origin = f"Made {facts['made'][:16].replace('T', ' ')} UTC from the ledger"
    if "head" in facts:
        lines.append(f"{origin}: {facts['entries']} entries, head digest {facts['head']}. {_VERIFY}")
    else:
        lines.append(f"{origin}. Questions, analysts and the head digest are shown to the owner only.")
    if "signature" in facts:
        lines.append(f"Signed ({facts['signature']['algorithm']}) by {facts['signature']['public_key']}.")
    return lines


def _title(facts: Facts) -> str:
    if facts["scope"] == "release":
        return f"Privacy label of release {facts['releases'][0]['entry']} of {facts['title']}"
    return f"Privacy label of {facts['title']}"


# HTML


def label_html(facts: Facts) -> str:
    """Render the label as a page that stands alone."""
    title = _title(facts)
    words = "".join(f"<p>{html_text(line)}</p>" for line in facts["promise in words"])
    description = facts["deployment"]["product"]["description"]
    body = [
        '<p class="kicker">Differential privacy</p>',
        f"<h1>{html_text(title)}</h1>",
        f'<p class="muted">{html_text(description)}</p>' if description != NOT_STATED else "",
        _cards(facts),
        f'<section class="promise"><h2>For one {html_text(facts["unit"])} this means</h2>{words}</section>',
        f"<h2>Who is protected, and how</h2>{_definitions(_overview(facts))}",
        _burn_down(facts),
        f"<h2>{_release_heading(facts)}</h2>",
        *(_release_article(each) for each in facts.get("releases", ())),
        "<h2>What is not covered</h2><ul>",
        *(f"<li>{html_text(each)}</li>" for each in facts["not covered"]),
        "</ul>",
        *(f"<h2>{name}</h2>{_definitions(_statements(facts[key]))}" for key, name in _SECTIONS.items()),
        "<footer>",
        *(f"<p>{html_text(line)}</p>" for line in _footer(facts)),
        "</footer>",
    ]
    return render_page(title, "\n".join(part for part in body if part))


def _release_heading(facts: Facts) -> str:
    if facts["scope"] == "release":
        return "The release"
    if "releases" not in facts:
        return "Releases are listed for the owner only"
    count = len(facts["releases"])
    return f"{count:,} {'release' if count == 1 else 'releases'}"


def _cards(facts: Facts) -> str:
    cards = [
        (f"one {facts['unit']}", "is protected"),
        (_price(facts["promise"]), "is promised for all releases"),
        (_price(facts["spent"]), "is spent so far"),
        (f"ε = {facts['left']['epsilon']}", "one more release may cost"),
    ]
    return '<div class="cards">' + "".join(
        f'<div class="card"><b>{_unbroken(value)}</b><span>{name}</span></div>' for value, name in cards
    ) + "</div>"  # fmt: skip


def _unbroken(text: str) -> str:
    """A figure on each line, none of which is broken in its middle; other texts as they are."""
    if "=" not in text:
        return html_text(text)
    return "<br>".join(f"<span>{html_text(figure)}</span>" for figure in text.split(", "))


def _definitions(lines: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{html_text(name)}</dt><dd>{html_text(text)}</dd>" for name, text in lines)
    return f"<dl>{rows}</dl>"


def _burn_down(facts: Facts) -> str:
    if not facts.get("burn-down") or facts["scope"] == "release":
        return ""
    from hubbub.report.charts import draw_burn_down  # not needed by the other renderings

    moments = [(each["when"], each["charges"], each["left"]) for each in facts["burn-down"]]
    return f"<figure>{draw_burn_down(moments, facts['promise']['epsilon'], today=facts['made'])}</figure>"


def _release_article(release: Facts) -> str:
    when = release["when"][:16].replace("T", " ")
    head = f"Entry {release['entry']} · {when} UTC · {release['who']} · {release['dataset']}".rstrip(" ·")
    return (
        f'<article class="release"><h3>{html_text(head)}</h3>'
        f'<code class="question">{html_text(" ".join(release["what"].split()))}</code>'
        f"{_definitions(_release_lines(release))}</article>"
    )


# Markdown, text and YAML


def label_markdown(facts: Facts) -> str:
    """Render the label as Markdown."""
    lines = [f"# {markdown_text(_title(facts))}", ""]
    lines += [f"> {markdown_text(line)}" for line in facts["promise in words"]]
    lines += ["", "## Who is protected, and how", "", *_table(_overview(facts))]
    lines += ["", f"## {_release_heading(facts)}"]
    for each in facts.get("releases", ()):
        when = each["when"][:16].replace("T", " ")
        lines += ["", f"### Entry {each['entry']}, {when} UTC, {markdown_text(each['who'])}", ""]
        # Indented: a fence in the question could not end it.
        lines += [f"    {escape(' '.join(each['what'].split()))}", "", *_table(_release_lines(each))]
    lines += [
        "",
        "## What is not covered",
        "",
        *(f"- {markdown_text(each)}" for each in facts["not covered"]),
    ]
    for key, name in _SECTIONS.items():
        lines += ["", f"## {name}", "", *_table(_statements(facts[key]))]
    lines += ["", "---", "", *(f"{markdown_text(line)}\n" for line in _footer(facts))]
    return "\n".join(lines).rstrip() + "\n"


def _table(lines: Sequence[tuple[str, str]]) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        *(f"| {markdown_text(name)} | {markdown_text(text)} |" for name, text in lines),
    ]


def label_text(facts: Facts) -> str:
    """Render the label as text."""
    lines = [_title(facts), "", *facts["promise in words"], ""]
    lines += [f"{name}: {text}" for name, text in _overview(facts)]
    lines += ["", _release_heading(facts)]
    for each in facts.get("releases", ()):
        lines.append(f"  {each['entry']}  {each['when'][:19]}  {each['who']}")
        lines.append(f"      {' '.join(each['what'].split())}")
        lines += [f"      {name}: {text}" for name, text in _release_lines(each)]
    lines += ["", "Not covered", *(f"  {each}" for each in facts["not covered"])]
    for key, name in _SECTIONS.items():
        lines += ["", name, *(f"  {field}: {text}" for field, text in _statements(facts[key]))]
    return "\n".join(map(escape, [*lines, "", *_footer(facts)])) + "\n"


def label_yaml(facts: Facts) -> str:
    """Render the label as YAML: each name on a line, each value as JSON, which YAML reads too."""
    return escape_json("\n".join(_yaml(facts, "")) + "\n")


def _yaml(facts: Facts, indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
