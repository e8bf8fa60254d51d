# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The package as it is built and as pip installs it. Needs no device and no network."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

OUT = pathlib.Path(os.environ["MKEY_TEST_OUT"])
SOURCE = pathlib.Path(os.environ["MKEY_TEST_SOURCE"])
LIBRARY = pathlib.Path(os.environ["MKEY_TEST_LIBRARY"])

# Prints the library that the package has loaded, and where the package is.
SHOW = """
import ibmkey, ibmkey._lib
print({line.split()[-1] for line in open("/proc/self/maps") if "libibmkey" in line}.pop())
print(ibmkey._lib.__file__)
"""


class Install(unittest.TestCase):
    def run_in(self, directory: pathlib.Path | None, *command: str, **env: str) -> str:
        """Returns the output of a command that succeeds, with variables of the environment."""
        done = subprocess.run(command, cwd=directory, env=os.environ | env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def loaded(self, **env: str) -> tuple[pathlib.Path, pathlib.Path]:
        """Returns the library and the module of the package that a new interpreter finds."""
        library, module = self.run_in(None, sys.executable, "-c", SHOW, **env).split()
        return pathlib.Path(library), pathlib.Path(module)

    def search_path(self, module: pathlib.Path) -> list[str]:
        """Returns what a module says of where its libraries are."""
        dynamic = self.run_in(None, "readelf", "-dW", str(module)).splitlines()
        return [line.rsplit("[", 1)[1].rstrip("]") for line in dynamic if "RPATH" in line or "RUNPATH" in line]

    def test_the_package_in_the_tree_finds_the_library_beside_it(self) -> None:
        library, module = self.loaded(PYTHONPATH=str(OUT / "python" / "lib"), LD_LIBRARY_PATH="")
        self.assertEqual(library.parent, OUT / "lib")
        self.assertEqual(self.search_path(module), ["$ORIGIN/../../../lib"])

    def test_pip_install_with_an_installed_library(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            self.run_in(LIBRARY, "make", "--silent", f"O={OUT}", f"DESTDIR={root}", "PREFIX=/usr", "install")
            libraries = root / "usr" / "lib"
            env = {
                "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
                "PKG_CONFIG_SYSROOT_DIR": directory,
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_CACHE_DIR": "1",
                "PIP_ROOT_USER_ACTION": "ignore",
                "IBMKEY_LDFLAGS": "",
            }
            pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-index", "--no-deps", "--no-build-isolation"]
            # Without what setuptools has built there.
            shutil.copytree(SOURCE, root / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so"))
            self.run_in(root / "source", *pip, "--target", str(root / "site"), ".", **env)
            env = {"PYTHONPATH": str(root / "site"), "LD_LIBRARY_PATH": str(libraries)}
            library, module = self.loaded(**env)
            self.assertEqual((library.parent, module.parent), (libraries, root / "site" / "ibmkey"))
            # An installed package must not look for libraries beside itself.
            self.assertEqual(self.search_path(module), [])

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy")
    def test_the_stubs_have_what_the_modules_have(self) -> None:
        package = str(OUT / "python" / "lib")
        modules = ("ibmkey._dm", "ibmkey._lib", "ibmkey._wr")
        self.run_in(None, sys.executable, "-m", "mypy.stubtest", *modules, PYTHONPATH=package, MYPYPATH=package)


if __name__ == "__main__":
    unittest.main()
