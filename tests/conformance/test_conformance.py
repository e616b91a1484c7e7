"""The protocol's own suite finds nothing wrong, over both ways of hosting, but for what is known and why."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.conformance.cases import HOSTINGS, SUBJECTS, Hosting, Subject, excuses, hosted, outcome, scenarios, stale
from tests.conformance.suite import REVISIONS, Revision, run, unexpected
from tests.conformance.table import DOCUMENT, Column, committed, document
from tests.node import toolchain
from tests.serve.knowledge import fill


@pytest.fixture(autouse=True, scope="module")
def node() -> None:
    toolchain.require()


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param


@pytest.fixture(scope="module", params=HOSTINGS)
def hosting(request: pytest.FixtureRequest) -> Hosting:
    return request.param


@pytest.fixture(scope="module")
def url(subject: Subject, hosting: Hosting, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    data_dir = tmp_path_factory.mktemp("data")
    fill(data_dir)
    with hosted(subject, hosting, data_dir) as reached:
        yield reached


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_finds_only_what_is_known(
    url: str, subject: Subject, hosting: Hosting, revision: Revision, tmp_path: Path
):
    judged, excused = scenarios(subject, revision), excuses(subject, revision)
    verdicts = run(url, revision, tmp_path, judged, excused)
    failures = {name: unexpected(verdicts, name, excused) for name in judged if name not in excused}
    assert {name: found for name, found in failures.items() if found} == {}
    assert stale(verdicts, excused) == set()
    told = {name: outcome(verdicts, name, excused) for name in judged}
    assert committed((subject, revision, hosting)) == told, "run `make tables`"


def test_the_page_is_as_the_run_writes_it():
    columns: list[Column] = [
        (subject, revision, hosting) for subject in SUBJECTS for revision in REVISIONS for hosting in HOSTINGS
    ]
    assert document({column: committed(column) for column in columns}) == DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_known_failure_has_a_reason(subject: Subject, revision: Revision):
    assert all(excuses(subject, revision).values())
