"""Audits: lower bounds of ε, of any black box and of training runs."""

from typing import TYPE_CHECKING

from hubbub.lazy_exports import export_lazily

if TYPE_CHECKING:
    from hubbub.audit.black_box import audit
    from hubbub.audit.claims import Claim
    from hubbub.audit.finding import Audit, Witness
    from hubbub.audit.neighbours import InputPair, RowDomain
    from hubbub.audit.repeated_training import RunsAudit, audit_runs
    from hubbub.audit.training import TrainingAudit, audit_training, white_box

__all__ = [
    "Audit",
    "Claim",
    "InputPair",
    "RowDomain",
    "RunsAudit",
    "TrainingAudit",
    "Witness",
    "audit",
    "audit_runs",
    "audit_training",
    "white_box",
]

_HOMES = {
    "black_box": ("audit",),
    "claims": ("Claim",),
    "finding": ("Audit", "Witness"),
    "neighbours": ("InputPair", "RowDomain"),
    "training": ("TrainingAudit", "audit_training", "white_box"),
    "repeated_training": ("RunsAudit", "audit_runs"),
}

__getattr__, __dir__ = export_lazily(__name__, _HOMES, extra="training")
