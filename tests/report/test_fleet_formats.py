"""A fleet for other programs: safe lines, exit codes, JUnit and Prometheus."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest
from fleet_samples import CELLS, HOSTILE, arrivals, judged, make_fleet, make_host, make_hosts
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._document.fleets import Fleet
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.judge import judge
from pyxfer._report.fleet_formats import (
    LONGEST_REASON,
    causes_of,
    drain_lines,
    drain_reason,
    fleet_exposition,
    nagios_line,
    npd_line,
    safe,
    to_junit,
)
from pyxfer.errors import UsageError

SLOW = {**CELLS, "h2d:gpu0:pinned:256MiB": 20.0}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return make_fleet()


def late() -> Fleet:
    return judge([*arrivals(make_hosts(20)), Arrival("n99", "late", "no answer", None, "ssh")])


@given(st.text(max_size=400))
def test_a_safe_text_is_one_short_line_that_nothing_interprets(text: str) -> None:
    line = safe(text, LONGEST_REASON)
    assert len(line) <= LONGEST_REASON
    assert not set(line) & set("\n\r\t\x1b\"'`$\\|&<!*?[]{}#~;") - {";"}
    assert line.isascii()


def test_a_drain_line_is_the_host_and_its_reason(fleet: Fleet) -> None:
    first, second = drain_lines(fleet).splitlines()
    assert first.split(" ", 1)[0] == "n3"
    assert second.split(" ", 1)[0] == "n5"
    reason = first.split(" ", 1)[1]
    assert reason.startswith("pyxfer: ")
    assert "h2d:gpu0:pinned:256MiB" in reason
    assert len(reason) <= LONGEST_REASON


def test_a_long_cause_does_not_make_a_reason_longer(fleet: Fleet) -> None:
    (contrast, *_) = fleet.contrasts
    long = msgspec.structs.replace(contrast, value="x" * 500, what="y" * 500)
    assert len(drain_reason(fleet.host("n3"), long)) == LONGEST_REASON


def test_a_name_that_no_node_has_is_not_drained() -> None:
    slow = judged([*make_hosts(59), make_host(HOSTILE, SLOW), make_host("-rf", SLOW, labels={"a": "b"})])
    assert {host.host for host in slow.with_verdict("slow")} == {HOSTILE, "-rf"}
    assert drain_lines(slow) == ""


def test_lines_of_node_problem_detector(fleet: Fleet) -> None:
    assert npd_line(fleet, "n3")[1] == 1
    assert npd_line(fleet, "n1")[1] == 0
    assert npd_line(fleet, "n99")[1] == 2
    assert npd_line(fleet, None)[1] == 1
    assert npd_line(judge(arrivals(make_hosts(60, {7: 0.05}))), "n7")[1] == 2
    assert "\n" not in npd_line(fleet, "n3")[0]


def test_an_older_document_of_a_host_is_neither_missing_nor_a_case() -> None:
    older = make_host("n1", began_at="2026-11-22T12:00:00+00:00")
    found = judge(arrivals([older, *make_hosts(20)]))
    assert npd_line(found, None)[1] == 0
    assert nagios_line(found, None)[1] == 0
    assert nagios_line(found, None)[0].endswith("missing=0")
    root = ElementTree.fromstring(to_junit(found))
    assert (root.get("tests"), root.get("skipped")) == ("20", "0")


def test_lines_of_nagios(fleet: Fleet) -> None:
    line, code = nagios_line(fleet, None)
    assert code == 2
    assert line.startswith("PYXFER CRITICAL - ")
    assert line.endswith("| slow=2;;0 suspect=0;0 missing=1")
    assert line.count("|") == 1
    assert nagios_line(fleet, "n1") == ("PYXFER OK - n1 is as fast as the others | slow=0;;0 suspect=0;0 missing=0", 0)
    assert nagios_line(fleet, "n99")[1] == 3
    assert nagios_line(late(), None)[1] == 3
    assert nagios_line(judge(arrivals(make_hosts(60, {7: 0.05}))), None)[1] == 1


def test_an_unknown_host_is_refused(fleet: Fleet) -> None:
    with pytest.raises(UsageError, match="no host 'n1000'"):
        npd_line(fleet, "n1000")


def test_junit_has_a_case_for_each_host(fleet: Fleet) -> None:
    suite = ElementTree.fromstring(to_junit(fleet))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("42", "2", "1")
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["n3", "n5"]
    assert not any("\x1b" in (case.get("name") or "") for case in suite.iter("testcase"))


def test_metrics_have_verdicts_losses_and_limits(fleet: Fleet) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        each.name: each.samples for each in parser.text_string_to_metric_families(fleet_exposition(fleet).decode())
    }
    assert {s.labels["verdict"]: s.value for s in families["pyxfer_fleet_hosts"]} == {
        "fine": 39,
        "slow": 2,
        "suspect": 0,
        "not judged": 1,
    }
    assert {s.labels["host"] for s in families["pyxfer_fleet_host_slow"] if s.value == 1} == {"n3", "n5"}
    assert HOSTILE in {s.labels["host"] for s in families["pyxfer_fleet_host_slow"]}
    assert {s.labels["host"]: s.value for s in families["pyxfer_fleet_loss_ratio"]}["n3"] == pytest.approx(
        0.08, abs=0.01
    )
    assert all(0 < s.value < 0.1 for s in families["pyxfer_fleet_detection_limit_ratio"])


def test_a_cause_belongs_to_the_hosts_that_have_it(fleet: Fleet) -> None:
    assert causes_of(fleet).keys() == {"n3", "n5"}
