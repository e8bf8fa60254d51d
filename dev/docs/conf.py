# SPDX-License-Identifier: GPL-2.0
"""How Sphinx renders Documentation/ outside of a kernel tree: with the kernel's extension."""

import os
import re
import sys

from docutils import nodes
from sphinx import addnodes

# srctree is the kernel's source, as the extension has to know it as well.
sys.path.insert(0, os.path.join(os.environ["srctree"], "Documentation", "sphinx"))

project = "ib_mkey"
extensions = ["kerneldoc"]
root_doc = "index"
primary_domain = "c"
# As in the kernel's documentation: a literal block without a language is not Python.
highlight_language = "none"
html_theme = "alabaster"
html_copy_source = False
html_show_copyright = False
# Wide enough for a line of 100 characters of code, and not wider than the window.
html_theme_options = {"page_width": "min(1260px, 96%)", "body_max_width": "1000px", "show_powered_by": False}

kerneldoc_srctree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def link_pages(app, doctree):
    """Makes links of names such as concepts.rst, which the kernel's automarkup does for full paths."""
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference, nodes.title)):
            continue
        parts = re.split(r"\b([a-z]+)\.rst\b", text.astext())
        if not any(name in app.env.found_docs for name in parts[1::2]):
            continue
        new = []
        for i, part in enumerate(parts):
            if i % 2 == 0:
                new.append(nodes.Text(part))
            elif part not in app.env.found_docs:
                new.append(nodes.Text(part + ".rst"))
            else:
                link = addnodes.pending_xref(
                    "", refdomain="std", reftype="doc", reftarget=part, refdoc=app.env.docname, refexplicit=False, refwarn=True
                )
                link += nodes.inline(part, part)
                new.append(link)
        text.parent.replace(text, new)


def setup(app):
    app.connect("doctree-read", link_pages)
    return {"parallel_read_safe": True}
