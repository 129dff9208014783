"""Rehearsals: the load request by request, compared with the balancers of practice.

docs/rehearsal.md defines the model.
"""

from __future__ import annotations

from corral.loads.rehearsal.custom import Request
from corral.loads.rehearsal.driver import rehearse
from corral.loads.rehearsal.result import Promise, Rehearsal
from corral.loads.rehearsal.setting import Setting

__all__ = ["Promise", "Rehearsal", "Request", "Setting", "rehearse"]
