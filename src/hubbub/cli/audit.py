"""`hubbub audit`: does a mechanism keep its promise?"""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hubbub.audit.black_box import audit as run_audit
from hubbub.audit.claims import Claim
from hubbub.audit.finding import Audit, draw_laws
from hubbub.audit.neighbours import RowDomain, read_pairs
from hubbub.audit.subjects import CommandSubject, EndpointSubject, Subject, load_function, make_subject
from hubbub.audit.witness_file import make_witness_file, read_witness_file
from hubbub.audit.witness_file import replay as replay_event
from hubbub.cli.options import parse_above_zero, parse_confidence, parse_count, parse_delta, parse_number
from hubbub.cli.terminal import escaped, print_line, to_json, write_stdout
from hubbub.errors import InvalidInput
from hubbub.numbers import format_down, format_percent, parse_nonnegative
from hubbub.output_files import check_output_path, write_output
from hubbub.unit import Neighbours

__all__ = ["audit"]

_SUBJECTS = ("subject", "command", "sql")


class Relation(StrEnum):
    """The neighbouring relations."""

    ADD_REMOVE = "add-remove"
    SUBSTITUTE = "substitute"


class AuditFormat(StrEnum):
    """The output format."""

    TEXT = "text"
    JSON = "json"


SubjectArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUBJECT]",
        help="module:function or file.py:function of a database, or http://127.0.0.1:PORT/PATH.",
    ),
]
Epsilon = Annotated[str | None, typer.Option(metavar="E", help="Claimed ε.")]
Delta = Annotated[str, typer.Option(metavar="D", help="Claimed δ.")]
BoundDelta = Annotated[
    bool, typer.Option("--bound-delta", help="Bound δ at the claimed ε, instead of ε at δ.")
]
Rho = Annotated[str | None, typer.Option(metavar="RHO", help="Claimed ρ of zCDP, instead of ε.")]
Mu = Annotated[str | None, typer.Option(metavar="MU", help="Claimed μ of Gaussian DP, instead of ε.")]
Renyi = Annotated[
    str | None, typer.Option(metavar="ALPHA,TAU", help="Claimed Rényi DP τ of order α, instead of ε.")
]
Command = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Audit a command that reads a database, one row per line, and prints an answer.",
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help="Audit a query on a table data(person, value), answered by hubbub at ε."
    ),
]
Rows = Annotated[
    str,
    typer.Option(
        metavar="ROWS", help="One person's row: bounds 0:1, integers int:0:120, or categories a,b,c."
    ),
]
PairsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="JSON list of pairs (x, x′), each a list of two databases, to try instead of edge cases.",
    ),
]
RandomPairs = Annotated[
    str | None, typer.Option(metavar="N", help="Also try N random pairs of neighbouring databases.")
]
Relations = Annotated[Relation, typer.Option(help="How neighbouring databases differ.")]
BeyondBounds = Annotated[
    bool, typer.Option("--beyond-bounds", help="Also try rows outside --rows: NaN, infinities, overflow.")
]
Samples = Annotated[str, typer.Option(metavar="N", help="The most answers to draw.")]
Confidence = Annotated[str, typer.Option(metavar="C", help="Confidence of the lower bound.")]
Full = Annotated[bool, typer.Option("--full", help="Draw all samples, for the sharpest bound.")]
Times = Annotated[bool, typer.Option("--times", help="Also look at how long answers take, on this machine.")]
Batch = Annotated[
    bool, typer.Option("--batch", help="The function takes (database, count) and returns that many answers.")
]
WitnessFile = Annotated[
    Path | None, typer.Option("--witness", metavar="FILE", help="Write the event as a file to replay.")
]
Picture = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the two laws as SVG.")]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Count the event of a witness file on fresh draws of SUBJECT."),
]
Form = Annotated[AuditFormat, typer.Option("--format", help="The output format.")]


def audit(
    subject: SubjectArgument = None,
    epsilon: Epsilon = None,
    delta: Delta = "0",
    bound_delta: BoundDelta = False,
    rho: Rho = None,
    mu: Mu = None,
    renyi: Renyi = None,
    command: Command = None,
    sql: Sql = None,
    rows: Rows = "0:1",
    pairs: PairsFile = None,
    neighbours: Relations = Relations.ADD_REMOVE,
    beyond_bounds: BeyondBounds = False,
    random_pairs: RandomPairs = None,
    samples: Samples = "100000",
    confidence: Confidence = "0.95",
    full: Full = False,
    times: Times = False,
    batch: Batch = False,
    witness: WitnessFile = None,
    picture: Picture = None,
    replay: Replay = None,
    form: Form = AuditFormat.TEXT,
) -> None:
    """Search for evidence that a mechanism does not keep its ε, and bound ε from below.

    The exit code is 1 if a violation was found, 0 if none was, and 2 for errors. See docs/audit.md.

    \b
    hubbub audit mechanisms.py:noisy_sum --epsilon 1
    hubbub audit package.module:answer --epsilon 1 --delta 1e-6 --rows int:0:120 --witness found.json
    hubbub audit --command "Rscript sum.R" --epsilon 0.5 --samples 2000
    hubbub audit --sql "SELECT SUM(value) AS total FROM data" --epsilon 1 --samples 1000
    hubbub audit package.module:answer --replay found.json --samples 10000
    """  # noqa: D301 - the mark that keeps lines is a real \b
    certain, budget = parse_confidence(confidence), parse_count(samples, "samples")
    for path, endings in ((witness, (".json",)), (picture, (".svg",))):
        if path is not None:
            check_output_path(path, endings)
    address = {"subject": subject, "command": command, "sql": sql, "times": times, "batch": batch}
    address |= {"epsilon": epsilon, "delta": delta, "rows": rows, "neighbours": neighbours.value}
    if replay is not None:
        is_claimed = any(text is not None for text in (epsilon, rho, mu, renyi))
        claimed = (
            _parse_claim(epsilon, delta, rho, mu, renyi, bound_delta=bound_delta) if is_claimed else None
        )
        _replay(replay, address, budget, float(certain), claimed)
        return
    claim = _parse_claim(epsilon, delta, rho, mu, renyi, bound_delta=bound_delta)
    result = run_audit(
        _open_subject(address),
        claim=claim,
        rows=rows,
        neighbours=_neighbours(neighbours),
        pairs=None if pairs is None else read_pairs(pairs),
        beyond_bounds=beyond_bounds,
        random_pairs=0 if random_pairs is None else parse_count(random_pairs, "random_pairs"),
        samples=budget,
        confidence=certain,
        stop_early=not full,
    )
    if witness is not None and result.witness is not None:
        write_output(witness, make_witness_file(result, address), (".json",))
    if picture is not None:
        write_output(picture, draw_laws(result), (".svg",))
    _show(result, form, times=times, beyond_bounds=beyond_bounds)
    raise typer.Exit(1 if result.refuted else 0)


def _show(result: Audit, form: AuditFormat, *, times: bool, beyond_bounds: bool) -> None:
    if form is AuditFormat.JSON:
        write_stdout(to_json(result.to_dict(), indent=2) + "\n")
        return
    first, _, rest = str(result).partition("\n")
    print_line(escaped(first, "bold red" if result.refuted else "bold"))
    print_line(rest)
    unused = [
        *([] if times else ["times (--times)"]),
        *([] if beyond_bounds else ["rows outside the declared ones (--beyond-bounds)"]),
    ]
    if unused:
        print_line(f"Not looked at: {', '.join(unused)}.")


def _open_subject(address: dict[str, Any]) -> Subject:
    names = [name for name in _SUBJECTS if address.get(name)]
    if len(names) != 1:
        raise InvalidInput(
            "not exactly one of SUBJECT, --command and --sql is given",
            why="an audit has one subject",
            fix="give module:function, file.py:function, a loopback address, --command or --sql",
        )
    times = bool(address.get("times"))
    if address.get("command"):
        return CommandSubject(_split_command(address["command"]), times)
    if address.get("sql"):
        return _open_sql(address)
    where = str(address["subject"])
    if "://" in where:
        return EndpointSubject(where, times)
    # A module of this folder; at the end, so that it replaces no other one.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return make_subject(load_function(where), times=times, batch=bool(address.get("batch")))


def _split_command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise InvalidInput(
            "the command cannot be split into words", why="a quotation mark is open", fix="close it"
        ) from None


def _open_sql(address: dict[str, Any]) -> Subject:
    from hubbub.audit.sql_subject import SqlSubject  # it loads the database, which no other command needs

    if address.get("epsilon") is None:
        raise InvalidInput(
            "--sql is given without --epsilon", why="hubbub answers at a stated ε", fix="give --epsilon"
        )
    domain = RowDomain.parse(address["rows"])
    bounds = {} if domain.values else {"value": (domain.low, domain.high)}
    return SqlSubject(
        address["sql"],
        parse_above_zero(address["epsilon"], "epsilon"),
        parse_delta(address["delta"]),
        bounds=bounds,
        keys={"value": list(domain.values)} if domain.values else {},
        options={"rows_per_unit": 1},
        neighbours=_neighbours(address["neighbours"]),
    )


def _neighbours(relation: str) -> Neighbours:
    return Neighbours.SUBSTITUTE if relation == Relation.SUBSTITUTE else Neighbours.ADD_REMOVE


def _parse_claim(
    epsilon: str | None, delta: str, rho: str | None, mu: str | None, renyi: str | None, *, bound_delta: bool
) -> Claim:
    names = [name for name, text in (("e", epsilon), ("r", rho), ("m", mu), ("a", renyi)) if text is not None]
    if len(names) != 1:
        raise InvalidInput(
            "not exactly one of --epsilon, --rho, --mu and --renyi is given",
            why="an audit tests one claim",
            fix="give what the mechanism promises, such as --epsilon 1",
        )
    if epsilon is not None:
        at, slack = (
            float(parse_nonnegative(parse_number(epsilon, "epsilon"), "epsilon")),
            float(parse_delta(delta)),
        )
        return Claim.delta_at(at, slack) if bound_delta else Claim.approximate(at, slack)
    if rho is not None:
        return Claim.zcdp(float(parse_above_zero(rho, "rho")))
    if mu is not None:
        return Claim.gaussian(float(parse_above_zero(mu, "mu")))
    assert renyi is not None
    order, _, tau = renyi.partition(",")
    alpha = float(parse_above_zero(order, "renyi"))
    if alpha <= 1:
        raise InvalidInput(
            "the order of --renyi is not above 1",
            why="τ is defined for α > 1",
            fix="pass α and τ, such as 2,0.5",
        )
    return Claim.renyi(alpha, float(parse_above_zero(tau, "renyi")))


def _replay(
    path: Path, address: dict[str, Any], samples: int, confidence: float, claimed: Claim | None
) -> None:
    """Count the event on draws of the subject of the command line: what a file names is never run."""
    stored = read_witness_file(path)
    if not any(address[name] for name in _SUBJECTS):
        raise InvalidInput(
            "--replay is given without a subject",
            why="an audit runs only what its user names, never what a file names",
            fix="also give the SUBJECT, --command or --sql of the witness",
        )
    if any(address[name] != stored["subject"].get(name) for name in _SUBJECTS):
        was = [str(stored["subject"].get(name)) for name in _SUBJECTS if stored["subject"].get(name)]
        print_line("the file was made with another subject: ", escaped(", ".join(was) or "none"))
    flags = {name: bool(address[name] or stored["subject"].get(name)) for name in ("times", "batch")}
    result = replay_event(_open_subject(address | flags), stored, max(1, samples // 2))
    if not result.draws:
        raise InvalidInput(
            "there are no draws on one of the inputs", why="too few samples", fix="give a larger --samples"
        )
    low, high = result.probability_bounds(confidence)
    print_line(
        "the outcome ",
        escaped(result.event),
        f" has frequency {result.probability_x:.4g} on x and {result.probability_x_prime:.4g} on x′ "
        f"in {result.draws:,} fresh draws each",
    )
    if result.score == "seconds":
        print_line("times are those of this machine and drift, so that no bound is given")
        raise typer.Exit(0)
    known: Claim | None = stored["claim"] if claimed is None else claimed
    claim = Claim.approximate(0.0) if known is None else known
    at = f" {claim.at}" if claim.at else ""
    print_line(
        f"so that {claim.symbol} ≥ {format_down(claim.lower_bound(low, high), 3)}{at}, "
        f"with {format_percent(round(confidence, 12))} confidence",
        f" (claimed {claim.symbol} = {claim.value:g})" if known is not None else "",
    )
    raise typer.Exit(1 if known is not None and known.is_broken_by(low, high, known.value) else 0)
