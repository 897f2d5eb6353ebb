"""Examinations."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from doctor.cases import h200, health

from pyxfer._doctor.session import examine, nearest_known, without_trials
from pyxfer._document import codec
from pyxfer._document.examinations import Examination
from pyxfer._document.runs import Fact

RUN = h200()
NEAREST = nearest_known(RUN)
LIVE = Examination(without_trials(RUN), Fact(health()), NEAREST, examine(RUN, health(), NEAREST.value))


def test_every_finding_has_its_status_in_json() -> None:
    assert {finding["status"] for finding in json.loads(codec.encode(LIVE))["findings"]} <= {"fine", "unknown"}


def test_the_worst_status_is_that_of_the_examination() -> None:
    def worst(*statuses: Any) -> str:
        findings = tuple(msgspec.structs.replace(LIVE.findings[0], status=status) for status in statuses)
        return msgspec.structs.replace(LIVE, findings=findings).worst

    assert worst("fine", "unknown") == "fine"
    assert worst("fine", "suspicious", "unknown") == "suspicious"
    assert worst("suspicious", "wrong") == "wrong"
