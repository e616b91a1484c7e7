"""Run every client over every transport, and write docs/clients.md: `python -m tests.clients`."""

import sys
import tempfile
import time
from pathlib import Path

from tests.clients.drivers import DRIVERS
from tests.clients.operations import compare, expected
from tests.clients.servers import TRANSPORTS, reaching
from tests.clients.table import DOCUMENT, document, row
from tests.serve.knowledge import fill


def main() -> int:
    rows: dict[tuple[int, int], str] = {}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        data_dir, scratch = Path(folder, "data"), Path(folder, "scratch")
        scratch.mkdir()
        fill(data_dir)
        wanted = expected(data_dir)
        for column, transport in enumerate(TRANSPORTS):
            with reaching(transport, data_dir) as target:
                for line, driver in enumerate(DRIVERS):
                    began = time.monotonic()
                    got = driver.run(target, scratch)
                    found = compare(got, wanted, driver.protocol_version)
                    rows[line, column] = row(driver, transport, found)
                    wrong = {title: text for title, text in found.items() if text}
                    failures += len(wrong)
                    print(f"{driver.label} over {transport}: {time.monotonic() - began:.1f} s")
                    for title, text in wrong.items():
                        print(f"  {title}: {text}")
    DOCUMENT.write_text(document(text for _, text in sorted(rows.items())), encoding="utf-8")
    print(f"wrote {DOCUMENT}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
