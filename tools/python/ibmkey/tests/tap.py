# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs tests of unittest and reports in TAP: tap.py MODULE[.CLASS[.TEST]]..."""

from __future__ import annotations

import sys
import unittest
from typing import Any


class Tap(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.bad = 0

    def line(self, result: str, test: unittest.TestCase, more: str = "") -> None:
        name = test.id().split(".", 1)[-1]
        print(f"{result} {self.testsRun} {name}{more}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.line("ok", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.line("ok", test, f" # SKIP {reason}")

    def _failed(self, test: unittest.TestCase, error: Any) -> None:
        for text in self._exc_info_to_string(error, test).splitlines():  # type: ignore[attr-defined]
            print(f"# {text}")
        self.bad += 1
        self.line("not ok", test)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            print(f"# {subtest.id()}")
            self._failed(test, err)


def main() -> int:
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    print(f"TAP version 13\n1..{suite.countTestCases()}", flush=True)
    result = Tap()
    suite.run(result)
    return 1 if result.bad else 0


if __name__ == "__main__":
    sys.exit(main())
