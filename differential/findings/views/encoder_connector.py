"""Connectors on a screen: what was promised, and what came of it."""

from typing import Any

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment


def _promised(moment: Moment) -> str:
    """The items that were promised; where several engines were asked, those of each."""
    promised = _said(moment).get("promised", {})
    if any(isinstance(one, dict) for one in promised.values()):
        return "; ".join(f"{name}: {_names(one) or 'none'}" for name, one in promised.items())
    return _names(promised)


def _names(promised: dict[str, bool]) -> str:
    return ", ".join(item for item, is_promised in promised.items() if is_promised)


def _loaded(moment: Moment) -> str:
    """The items that were loaded, and those that are missing."""
    said = _said(moment)
    missing = [f"{item} missing" for item in said.get("missing", ())]
    return ", ".join([*said.get("loaded", {}), *missing])


def _said(moment: Moment) -> dict[str, Any]:
    said: dict[str, Any] = moment.record.outcome or {}
    return said


def _fields(moment: Moment) -> list[tuple[str, str]]:
    raised = moment.record.raised
    if raised is not None:
        return [("raised", f"{raised.type}: {raised.message}")]
    return [(name, str(value)) for name, value in _said(moment).items()]


VIEW = View(
    lanes=("engine", "promised", "loaded"),
    sides=lambda moment: (_promised(moment), _loaded(moment)),
    step_titles=("", "what came of it"),
    step=lambda moments: _fields(moments[-1]),
)
