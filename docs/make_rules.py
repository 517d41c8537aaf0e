"""Write docs/check.md from what the rules of ``mxfleet check`` say of themselves.

``python docs/make_rules.py``; with ``--check`` it only says whether the file is current (exit code
1 when it is not).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "check.md"
sys.path.insert(0, str(ROOT))

from orchestrator.author.check.registry import RULES, Rule  # noqa: E402
from orchestrator.author.check.rules import load_rules  # noqa: E402

# The subjects in the order of the work: module of the rules, heading.
SUBJECTS = {
    "names": "Names and files",
    "whitelist": "The whitelist",
    "harness_keys": "What the harness reads of a config",
    "config": "A config and its runner",
    "todo": "What was left open",
    "call": "Calls and schemas",
    "dtype": "The dtype",
    "data": "Data",
    "launcher": "The launcher",
    "metrics": "Metrics",
    "traffic": "Bytes read and written",
    "verification": "Verification",
    "verdicts": "Verdicts",
    "verdict_lost": "Verdicts that get lost",
    "never_fails": "Comparisons that cannot fail",
    "operator_used": "What is measured and what is verified",
    "thresholds": "Thresholds",
    "golden": "The reference",
    "style": "Style",
    "undefined": "Names that nothing defines",
    "suppress": "Ignore comments",
}

HEAD = """# The rules of mxfleet check

Made by `python docs/make_rules.py` from the rules themselves.

    mxfleet check                                  # the working folder's benchmark/, all operators
    mxfleet check my_op 'torch_*'                  # only these
    mxfleet check --root ~/mcoplib/benchmark       # another tree
    mxfleet check --source ~/mcoplib/op            # calls against the operators' sources
    mxfleet check --library mcoplib/_C.abi3.so     # or against a built library
    mxfleet check --fix                            # mend what can be mended safely
    mxfleet check --output github                  # annotations in a workflow; json: one a line

Configs, runners and the whitelist are read, never imported or run; torch is not needed. A finding
is `path:line:column: error[rule]: what; what to do`. Errors end with exit code 1, warnings alone
with 0, a command line that makes no sense with 2. What cannot be told from the text is no finding.

`# mxfleet: ignore[rule] reason`, at the line or in a comment of its own above it, silences a rule
there; several are separated by commas. What stands in a config, where there are no comments, is
silenced where the runner reads the key, or at the line of the runner's class.
"""


def main() -> int:
    """Write or check the file."""
    text = render()
    if "--check" in sys.argv[1:]:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print("docs/check.md is not current: run python docs/make_rules.py")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def render() -> str:
    """The whole file; subjects that this script does not know come last, under their own name."""
    load_rules()
    by_subject: dict[str, list[Rule]] = {name: [] for name in SUBJECTS}
    for rule in RULES.values():
        by_subject.setdefault(rule.subject, []).append(rule)
    parts = [HEAD]
    for subject, rules in by_subject.items():
        if rules:
            parts += [f"## {SUBJECTS.get(subject, subject.capitalize())}\n", *map(_entry, rules)]
    return "\n".join(parts)


def _entry(rule: Rule) -> str:
    notes = [
        rule.severity,
        *(["`--fix` mends it"] if rule.fixable else []),
        *(["needs `--source` or `--library`"] if rule.needs else []),
        *(["cannot be silenced"] if rule.silent else []),
    ]
    fix = rule.fix[:1].upper() + rule.fix[1:]
    return f"### {rule.id}\n\n{rule.what} ({', '.join(notes)})\n\nWhy: {rule.why}\n\nFix: {fix}.\n"


if __name__ == "__main__":
    sys.exit(main())
