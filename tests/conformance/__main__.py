"""Run the suite against every server, and write docs/conformance.md: `python -m tests.conformance`."""

import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.cases import HOSTINGS, SUBJECTS, excuses, hosted, outcome, scenarios, stale
from tests.conformance.suite import REVISIONS, run, unexpected
from tests.conformance.table import DOCUMENT, Column, document
from tests.serve.knowledge import fill


def main() -> int:
    columns: dict[Column, dict[str, str]] = {}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder, "data")
        fill(data_dir)
        for subject in SUBJECTS:
            for hosting in HOSTINGS:
                with hosted(subject, hosting, data_dir) as url:
                    for revision in REVISIONS:
                        began = time.monotonic()
                        judged, excused = scenarios(subject, revision), excuses(subject, revision)
                        verdicts = run(url, revision, Path(folder, f"{subject}-{hosting}-{revision}"), judged, excused)
                        cells = {scenario: outcome(verdicts, scenario, excused) for scenario in judged}
                        columns[subject, revision, hosting] = cells
                        print(f"{subject}, {hosting}, {revision}: {time.monotonic() - began:.1f} s")
                        for scenario in judged:
                            if cells[scenario] == "**failed**":
                                print(f"  {scenario}: {unexpected(verdicts, scenario, excused)}")
                                failed = True
                        for entry in stale(verdicts, excused):
                            print(f"  {entry} fails no longer")
                            failed = True
    DOCUMENT.write_text(document(columns), encoding="utf-8")
    print(f"wrote {DOCUMENT}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
