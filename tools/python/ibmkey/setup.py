# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Builds the modules in C; pyproject.toml has everything else."""

import os
import shlex
import subprocess

from setuptools import Extension, setup


def pkg_config(option: str) -> list[str]:
    """Returns what pkg-config says of libibmkey."""
    return shlex.split(subprocess.check_output(["pkg-config", option, "ibmkey"], text=True))


# Without -rpath, which the ibmkey.pc of a build tree has: IBMKEY_LDFLAGS says where the library is.
LIBS = pkg_config("--libs-only-L") + pkg_config("--libs-only-l")

setup(
    ext_modules=[
        Extension(
            f"ibmkey.{name}",
            [f"src/ibmkey/{name}.pyx"],
            extra_compile_args=pkg_config("--cflags"),
            extra_link_args=[*LIBS, "-libverbs", *shlex.split(os.environ.get("IBMKEY_LDFLAGS", ""))],
        )
        for name in ("_alloc", "_dm", "_lib", "_wr")
    ]
)
