# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs tests of unittest: tap.py MODULE[.CLASS[.TEST]]...

Reports the results by ksft.py, the kernel's helper for selftests, which has to be in PYTHONPATH.
"""

from __future__ import annotations

import io
import sys
import unittest
from typing import Any

import ksft


class Tap(unittest.TestResult):
    def _name(self, test: unittest.TestCase) -> str:
        return test.id().split(".", 1)[-1]

    def addSuccess(self, test: unittest.TestCase) -> None:
        ksft.test_result_pass(self._name(test))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        ksft.test_result_skip(f"{self._name(test)} ({reason})")

    def _failed(self, test: unittest.TestCase, error: Any) -> None:
        for text in self._exc_info_to_string(error, test).splitlines():  # type: ignore[attr-defined]
            ksft.print_msg(text)
        ksft.test_result_fail(self._name(test))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            ksft.print_msg(subtest.id())
            self._failed(test, err)


def main() -> None:
    # Nothing is lost if a test ends the process.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    ksft.print_header()
    ksft.set_plan(suite.countTestCases())
    suite.run(Tap())
    ksft.finished()


if __name__ == "__main__":
    main()
