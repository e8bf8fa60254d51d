# SPDX-License-Identifier: GPL-2.0
"""How Sphinx renders Documentation/ outside of a kernel tree: with the kernel's extension."""

import os
import sys

# srctree is the kernel's source, as the extension has to know it as well.
sys.path.insert(0, os.path.join(os.environ["srctree"], "Documentation", "sphinx"))

project = "ib_mkey"
extensions = ["kerneldoc"]
root_doc = "index"
primary_domain = "c"
html_theme = "alabaster"
html_copy_source = False

kerneldoc_srctree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
