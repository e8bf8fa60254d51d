#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Finds words and forms that CONTRIBUTING.md rules out, in comments, messages and pages.

words.py FILE...

Prints each hit as file:line. A hit is accepted if words.allow has it, with a reason.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))

PEOPLE = "nobody|whoever|whomever|somebody|someone|anybody|anyone|everybody|everyone"
# "for the core to use" is a purpose, "for the core uses it" is a reason.
VERBS = "is|are|was|were|has|have|had|does|do|did|can|cannot|may|might|must|will|would"
RELATIVE = "(that|which|who|there|whose) "
# Nouns that "who" can follow.
ROLES = "user|users|caller|callers|owner|owners|people|author|authors|administrator|administrators|reader|process"
RULES = [
    ("a person for a thing, or a pronoun for its name", rf"\b({PEOPLE})\b"),
    (
        "'who' for a thing",
        r"\b(?<!-)(?<!mkeyctl )(?<![\x22])(?<![\x22] )who\b(?!::)(?! (reads?|writes?) this)(?<!" + r" who)(?<!".join(ROLES.split("|")) + r" who)(?<!, who)",
    ),
    ("'of ours'", r"\bof ours\b"),
    ("'of its own' for 'its own'", r"\bof (its|their|one's|his) own(?=[.,;:)]| (and|as|in|on|to|that|which|with|after|from|when|by|has|have|are|is)\b|$)"),
    ("a double genitive", r"\bof (an?|the|this|another) \w+'s(?=[.,;:)]| (that|which|is|are|was|were)\b)"),
    ("'has it'", r"\b(has|have|had) it\b(?! (to|at|in|on|as|for|by|open)\b)"),
    (
        "'for' meaning because",
        rf", (?-i:for) ((it|they|there|{PEOPLE})\b|(the|an?|all|each|no|its|their) ((?!{RELATIVE})\S+ )?(?!{RELATIVE})\S+ ({VERBS})\b)",
    ),
    ("'goes on' for 'continues', 'lets go of' for 'releases'", r"\b(goes|go|going|went) on\b|\blet(s|ting)? go of\b"),
    ("'far end' for 'remote side'", r"\b(far|near) (end|side)\b|\bfrom afar\b"),
    ("'is to be' for 'must be'", r"\b(is|are|was|were) (not )?to be\b"),
    ("'that there is', 'what there is'", r"\b(what|that) there (is|are)\b(?! (a|an|no|not|one|none|nothing|room)\b)"),
    ("'lest', 'by and by'", r"\blest\b|\bby and by\b"),
    ("'thereof' and its kind", r"\b(there|where|here)(of|in|to|upon|with)\b"),
    ("work that is not done", r"\b(TODO|FIXME|XXX)\b"),
]
RULES = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in RULES]

# A summary is the first paragraph of a block of /// or //!. It is a statement.
SUMMARY = re.compile(r"^[ \t]*//[/!] (.*)$")
CLAUSE = re.compile(r"^(Whether|Who|What|How|Why|Where)\b")


def is_question(lines):
    """Returns whether the block of documentation that lines begin with asks, or is a clause without a verb."""
    text = []
    for line in lines:
        match = SUMMARY.match(line)
        if not match:
            break
        text.append(match.group(1))
        if len(text) == 8:
            break
    text = " ".join(text)
    return bool(CLAUSE.match(text)) or text.split(". ")[0].endswith("?")


# What begins a line of a comment or of a list, and ends one.
LEADER = re.compile(r"^[ \t]*(//[/!]?|/\*\*?|\*/?|#+|\.\.|\*|-)?[ \t]*")

SKIP = re.compile(
    r"(^|/)(COPYING|Cargo\.lock)$|/seeds/|^dev/lint/words\.|^CONTRIBUTING\.md$|\.(png|svg|patch)$"
)


def hits_of(text):
    """Yields (line, rule, excerpt). A sentence may go over the ends of lines."""
    joined, starts = [], []
    length = 0
    previous = ""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if SUMMARY.match(line) and not re.match(r"^[ \t]*//[/!]", previous) and is_question(lines[number - 1 :]):
            yield number, "a summary that is a question", line.strip()
        previous = line
        line = LEADER.sub("", line).rstrip().removesuffix("*/").rstrip()
        starts.append((length, number))
        joined.append(line)
        length += len(line) + 1
    joined = " ".join(joined)
    for name, pattern in RULES:
        at = 0
        for match in pattern.finditer(joined):
            while at + 1 < len(starts) and starts[at + 1][0] <= match.start():
                at += 1
            excerpt = joined[max(0, match.start() - 30) : match.end() + 30]
            yield starts[at][1], name, excerpt


def main(files):
    allowed = {}
    with open(os.path.join(HERE, "words.allow"), encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
    for line in lines:
        path, text, reason = line.split("\t")
        allowed[path, text] = 0
        if not reason.strip():
            print(f"dev/lint/words.allow: no reason for {text!r} in {path}")
            return 1
    failed = False
    for path in sorted(files):
        if SKIP.search(path):
            continue
        try:
            with open(os.path.join(TOP, path), encoding="utf-8") as file:
                text = file.read()
        except (FileNotFoundError, UnicodeDecodeError):
            continue
        for line, rule, excerpt in sorted(hits_of(text)):
            keys = [key for key in allowed if key[0] == path and key[1] in excerpt]
            for key in keys:
                allowed[key] += 1
            if not keys:
                print(f"{path}:{line}: {rule}: ...{excerpt}...")
                failed = True
    for (path, text), count in allowed.items():
        if not count:
            print(f"dev/lint/words.allow: {text!r} is not in {path}")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
