"""One outcome per charge: as it was before, kept so that each attack is seen to find what it looks for."""

from dataclasses import replace

from hubbub.errors import Refused
from hubbub.sql.composite_plan import execute_plan
from hubbub.sql.executor import execute
from hubbub.sql.fingerprint import fingerprint
from hubbub.sql.result import Result


def only_answers_are_kept(data, plan):
    """A31: a charge without an answer is run again, and only answers and refusals are stored."""
    charge = data.account.record_charge(**data._charge_fields(plan), key=fingerprint(plan, data._origin))
    selection = None if charge.is_new else data.account.get_release(charge.number)
    if selection is None:
        try:
            (answers,) = execute_plan(plan, data._engine, lambda _: None)
        except Refused as text:
            answers = Result((), {"refused": [text.what, text.why, text.fix]})
        selection = data.account.record_release(charge.number, answers.to_json())
    return Result.from_json(selection)


def any_plan_is_looked_at(data, plan):
    """A33: the exact answers to a plan, whichever dataset made it."""
    data.account.record_nonprivate_access(plan.query.text)
    with data._engine.snapshot():
        done = execute(replace(plan), data._engine, is_exact=True)
    return Result(tuple(done.columns), {})
