#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Checks the man pages.

Each symbol that libibmkey.map exports, and each function of ibmkey_mpi.h, has a page, under
its own name, that names it and has the prototype of the header. The page of a function of
libibmkey lists the errno values for which the library has a sentence. ibmkey-mlx5dv.7 names the
functions of libmlx5.map that do something, and no others. Each command and option of mkeyctl
is in mkeyctl.8. A page begins and ends as one of rdma-core, and refers to pages that exist.

The pages of Documentation/infiniband/mkey name the same: library.rst each symbol of libibmkey.map
and of the preload library, uapi.rst each method, and porting.rst each function of mlx5dv.h.
installation.rst names each unit of systemd that is installed.
"""

import os
import re
import shlex
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIB = os.path.join(TOP, "tools/lib/ibmkey")
MPI = os.path.join(TOP, "tools/lib/ibmkey-mpi")
MLX5DV = os.path.join(TOP, "tools/lib/ibmkey-mlx5dv")
CTL = os.path.join(TOP, "tools/mkeyctl")
SECTIONS = ["NAME", "DESCRIPTION", "SEE ALSO"]
failed = False


def finding(path, text):
    global failed
    failed = True
    print(f"{os.path.relpath(path, TOP)}: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def pages_in(directory):
    """The pages, each in the directory of its section, where `man -M` and a .so request find it."""
    pages = {}
    for section_dir in sorted(os.listdir(directory)):
        place = os.path.join(directory, section_dir)
        if not os.path.isdir(place):
            finding(place, "is in no directory of a section, such as man3")
            continue
        for name in sorted(os.listdir(place)):
            pages[name] = os.path.join(place, name)
            if section_dir != f"man{name.rsplit('.', 1)[-1]}":
                finding(pages[name], "is in the directory of another section")
    return pages


def body_of(path, pages):
    """The page, or the one that it is another name for."""
    text = read(path)
    link = re.fullmatch(r"\.so (man\d)/(\S+)\n", text)
    if not link:
        return text
    if os.path.basename(os.path.dirname(pages.get(link[2], ""))) != link[1]:
        finding(path, f"there is no {link[1]}/{link[2]}")
        return ""
    return read(pages[link[2]])


def section(text, name):
    found = re.search(rf'^\.SH "?{name}"?\n(.*?)(?=^\.SH |\Z)', text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def plain(text):
    """The text without requests of troff."""
    lines = []
    for line in text.split("\n"):
        if re.match(r"\.[BIR]+ ", line):
            line = "".join(shlex.split(line)[1:]) if '"' in line else line.split(" ", 1)[1]
        elif line.startswith("."):
            continue
        lines.append(line)
    return re.sub(r"\\f[A-Z]", "", "\n".join(lines)).replace("\\-", "-")


def normal(text):
    return re.sub(r"\s+", " ", re.sub(r"\s*([(),;*])\s*", r"\1", text)).strip()


def check_page(path, pages):
    text = read(path)
    if text.startswith(".so "):
        return
    if "SPDX-License-Identifier" not in text:
        finding(path, "no SPDX line")
    for name in SECTIONS:
        if not section(text, name).strip():
            finding(path, f"no section {name}")
    for name, number in re.findall(r"(?:\\fB|\.BR )((?:ibmkey|mkeyctl|ibv_rereg_mr_)[\w-]*)(?:\\fP)? ?\((\d)\)", text):
        if f"{name}.{number}" not in pages:
            finding(path, f"refers to {name}({number}), which does not exist")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def check_functions(symbols, source, header, pages):
    """Each symbol, which the file source has, has a page with its prototype in the header."""
    if not symbols:
        finding(source, "no symbols found")
    for symbol in symbols:
        name = f"{symbol}.3"
        if name not in pages:
            finding(source, f"there is no page {name} of a symbol here")
            continue
        text = body_of(pages[name], pages)
        if symbol not in re.split(r"[,\s]+", section(text, "NAME").split("\\-")[0]):
            finding(pages[name], f"NAME does not have {symbol}")
        prototype = re.search(rf"^[^\n;{{}}#]*\b{symbol}\([^;]*;", header, re.MULTILINE)
        if not prototype:
            finding(pages[name], f"{symbol} is in no header")
        elif normal(prototype[0]) not in normal(plain(section(text, "SYNOPSIS"))):
            finding(pages[name], f"SYNOPSIS does not have the prototype of the header: {normal(prototype[0])}")
    for name, path in pages.items():
        if name.endswith(".3") and name[:-2] not in symbols:
            finding(path, f"is the page of no symbol of {os.path.basename(source)}")


def check_library(pages):
    source = os.path.join(LIB, "libibmkey.map")
    include = os.path.join(LIB, "include/infiniband")
    header = "".join(read(os.path.join(include, name)) for name in sorted(os.listdir(include)))
    symbols = re.findall(r"^\s+(ib\w+);", read(source), re.MULTILINE)
    check_functions(symbols, source, without_comments(header), pages)


def functions_of(paths, pattern):
    """The text of each function, or impl block, of Rust files. Tests are left out."""
    texts = {}
    for path in paths:
        parts = re.split(pattern, read(path).split("#[cfg(test)]")[0], flags=re.MULTILINE)
        texts.update((name, text.split("\n}\n")[0]) for name, text in zip(parts[1::2], parts[2::2]))
    return texts


def rust_files(directory, name):
    """The file of a module and those of its parts, without tests."""
    part = os.path.join(directory, name)
    paths = [os.path.join(part, file) for file in sorted(os.listdir(part)) if not file.endswith("_tests.rs")]
    return [part + ".rs", *paths]


def check_errors(pages):
    """A page lists each errno value for which the library has a sentence. The functions in
    explain/plain.rs are for calls of several kinds, so they count for EINVAL only.
    """
    src = os.path.join(LIB, "src")
    sentences = functions_of(rust_files(src, "explain"), r"^(?:pub\((?:crate|super)\) )?(?:unsafe )?(?:fn|impl) (\w+)")
    plain_ones = functions_of([os.path.join(src, "explain/plain.rs")], r"^pub\(crate\) fn (\w+)")

    def values(name, seen):
        if name in seen or name not in sentences:
            return set()
        seen.add(name)
        if name in plain_ones:
            return {"EINVAL"}
        text = sentences[name]
        others = re.findall(r"(?<![.\w])(?:\w+::)*(\w+)\(", text)
        return set(re.findall(r"\blibc::(E[A-Z]+)", text)).union(*(values(other, seen) for other in others))

    calls = functions_of(rust_files(src, "ffi"), r"^pub unsafe extern \"C\" fn (\w+)")
    if not sentences or not calls:
        finding(src, "no functions found")
    for name, text in calls.items():
        wanted = {"EFAULT"} if re.search(r"Errno::EFAULT|\b(?:store|slice)\(", text) else set()
        for sentence in re.findall(r"\b(?:calls|plain)::(\w+)", text):
            wanted |= values(sentence, set())
        if "rebind_or_explain(" in text or "many::explain(" in text:
            wanted |= values("explain", set())
        path = pages.get(f"{name}.3")
        if not path:
            continue
        errors = section(body_of(path, pages), "ERRORS")
        for other in re.findall(r"errors of \\fB(\w+)\\fP\(3\)|Those of \\fB(\w+)\\fP\(3\)", errors):
            errors += section(body_of(pages[f"{other[0] or other[1]}.3"], pages), "ERRORS")
        for value in sorted(wanted - set(re.findall(r"\bE[A-Z]{3,}\b", plain(errors)))):
            finding(path, f"ERRORS does not have {value}, which {name}() can return")


def check_mpi(pages):
    source = os.path.join(MPI, "ibmkey_mpi.h")
    header = without_comments(read(source))
    check_functions(re.findall(r"\b(ibmkey_mpi_\w+)\(", header), source, header, pages)


def check_mlx5dv(pages):
    source, page = os.path.join(MLX5DV, "libmlx5.map"), pages["ibmkey-mlx5dv.7"]
    without = set(re.findall(r"\b_*mlx5dv_\w+", read(os.path.join(MLX5DV, "src/unsupported.rs"))))
    offered = set(re.findall(r"^\s+(_*mlx5dv_\w+);", read(source), re.MULTILINE)) - without
    named = set(re.findall(r"\bmlx5dv_\w+(?=\(\))", plain(read(page))))
    # The setters of work requests are inline functions.
    header = read(os.path.join(MLX5DV, "include/infiniband/mlx5dv.h"))
    inline = set(re.findall(r"\b(mlx5dv_wr_\w+)\(", without_comments(header)))
    refused = set(re.findall(r"(mlx5dv_wr_\w+)\(?\)? - [^*]*not offered", header))
    for name in sorted((offered | inline - refused) - named):
        finding(page, f"does not name {name}(), which does something")
    for name in sorted(named - offered - (inline - refused)):
        finding(page, f"names {name}(), which does nothing")


def check_mkeyctl(pages):
    text = plain(read(pages["mkeyctl.8"]))
    sources = os.path.join(CTL, "src")
    main = read(os.path.join(sources, "main.rs"))
    commands = [name.lower() for name in re.findall(r"^    (\w+)\(\w+::Args\),", main, re.MULTILINE)]
    options = set()
    files = [os.path.join(directory, name) for directory, _, names in os.walk(sources) for name in names]
    for path in files:
        for attributes, field in re.findall(r"((?:^ *#\[arg\([^\]]*\)\]\n)+) *(?:pub )?(\w+):", read(path), re.MULTILINE):
            if re.search(r"\blong\b", attributes):
                options.add("--" + field.replace("_", "-"))
    if not commands or not options:
        finding(os.path.join(sources, "main.rs"), "no commands or no options found")
    for word in [f"mkeyctl {command}" for command in commands] + sorted(options):
        if word not in text:
            finding(pages["mkeyctl.8"], f"does not name {word}")


def check_named(page, source, words):
    """The page names each word, which the file source has."""
    path = os.path.join(TOP, "Documentation/infiniband/mkey", page)
    text = read(path)
    if not words:
        finding(source, f"nothing found that {page} should name")
    for word in sorted(set(words)):
        if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            finding(path, f"does not name {word} of {os.path.relpath(source, TOP)}")


def check_documentation():
    def symbols(source, pattern):
        return source, re.findall(pattern, without_comments(read(source)), re.MULTILINE)

    exported = r"^\s+(ib\w+);"
    check_named("library.rst", *symbols(os.path.join(LIB, "libibmkey.map"), exported))
    check_named("library.rst", *symbols(os.path.join(LIB, "preload/libibmkey-preload.map"), exported))
    check_named(
        "uapi.rst",
        *symbols(os.path.join(TOP, "include/uapi/rdma/ib_mkey_ioctl.h"), r"\b(IB_MKEY_METHOD_\w+)"),
    )
    check_named(
        "porting.rst",
        *symbols(os.path.join(MLX5DV, "include/infiniband/mlx5dv.h"), r"\b(mlx5dv_\w+)\("),
    )
    units = os.path.join(TOP, "dev/install")
    check_named("installation.rst", units, [name.removesuffix(".service") for name in os.listdir(units) if name.endswith(".service")])


def main():
    library, mkeyctl, mpi, mlx5dv = (pages_in(os.path.join(part, "man")) for part in (LIB, CTL, MPI, MLX5DV))
    pages = {**library, **mkeyctl, **mpi, **mlx5dv}
    for path in pages.values():
        check_page(path, pages)
    check_library(library)
    check_errors(library)
    check_mpi(mpi)
    check_mlx5dv(mlx5dv)
    check_mkeyctl(mkeyctl)
    check_documentation()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
