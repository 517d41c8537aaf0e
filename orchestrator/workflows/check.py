"""``mxfleet check``: lint a tree's benchmarks, and mend what can be mended safely."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.author.check import fix as mending
from orchestrator.author.check.engine import check_tree, is_tree
from orchestrator.author.check.finding import Finding
from orchestrator.author.check.known import known_operators
from orchestrator.errors import ConfigError, ExitCode
from orchestrator.events import Linted, Note, Sink, Summary
from orchestrator.inventory.find import find_inventory
from orchestrator.suites.mcoplib import SUBFOLDER


def check(
    tree: Path,
    operators: Sequence[str] | None,
    sink: Sink,
    *,
    sources: Sequence[Path] = (),
    libraries: Sequence[Path] = (),
    fix: bool = False,
) -> ExitCode:
    """Tell what is wrong in ``tree``; FAILED when there are errors, also after a ``fix``.

    ``sources`` and ``libraries`` are where operators' current schemas are read.
    """
    begun = time.monotonic()
    known = known_operators(sources, libraries)
    findings = check_tree(tree, operators, known=known)
    mended: list[Finding] = []
    files: tuple[Path, ...] = ()
    if fix:
        done = mending.mend(findings, lambda: check_tree(tree, operators, known=known))
        findings, mended, files = done.left, done.mended, done.files
        for path, why in done.kept.items():
            sink(Note(f"{path} {why}: it was not mended", level="warning"))
    ordered = [
        *((one, False) for one in findings if one.severity == "error"),
        *((one, False) for one in findings if one.severity == "warning"),
        *((one, True) for one in mended),
    ]
    for finding, fixed in ordered:
        sink(finding_event(finding, fixed))
    errors = sum(one.severity == "error" for one in findings)
    code = ExitCode.FAILED if errors else ExitCode.OK
    counts = {"errors": errors, "warnings": len(findings) - errors, "fixed": len(mended)}
    able = sum(one.edit is not None for one in findings)
    sink(
        Summary(
            command="check",
            exit_code=code,
            counts=counts,
            files=tuple(str(path) for path in files),
            seconds=time.monotonic() - begun,
            message=_closing(able, fix, findings),
        )
    )
    return code


def finding_event(finding: Finding, fixed: bool = False) -> Linted:
    """What is told of a finding; ``fixed``: it was mended."""
    return Linted(
        path=finding.at.path,
        line=finding.at.line,
        column=finding.at.column,
        severity=finding.severity,
        rule=finding.rule,
        message=finding.message,
        why=finding.why,
        fix=finding.fix,
        operator=finding.operator,
        fixable=finding.edit is not None,
        fixed=fixed,
    )


def _closing(able: int, fix: bool, findings: Sequence[Finding]) -> str | None:
    if not findings:
        return "nothing found"
    return f"--fix mends {able} of them" if able and not fix else None


def find_tree(root: Path | None, inventory: Path | None) -> Path:
    """The folder with config/, runners/ and the whitelist that is to be checked.

    ``root`` itself or its benchmark/; without one that of ``inventory``, of the current folder, of
    the inventory that commands here use.
    """
    if root is not None:
        return _tree_in(root)
    if inventory is not None:
        return inventory.absolute().parent / SUBFOLDER
    here = _tree_in(Path())
    if is_tree(here):
        return here
    try:
        return find_inventory().parent / SUBFOLDER
    except ConfigError:
        return here


def _tree_in(folder: Path) -> Path:
    below = folder / SUBFOLDER
    return below if not is_tree(folder) and below.is_dir() else folder


def find_libraries(named: Sequence[Path], inventory: Path | None) -> list[Path]:
    """The libraries that were named, else those of the inventory that lie on this machine.

    Raises ``ConfigError`` for an inventory that was named and cannot be read.
    """
    if named:
        return list(named)
    try:
        path = find_inventory(inventory)
        # Understanding an inventory takes longer than checking a tree.
        if inventory is None and b"library" not in path.read_bytes():
            return []
        from orchestrator.inventory.load import load

        targets = load(path).targets
    except (ConfigError, OSError):
        if inventory is not None:
            raise
        return []  # no command of this one's: whatever is wrong there is told by others
    words = [word.rpartition("=")[2] for target in targets for word in target.library]
    paths = [Path(word) for word in dict.fromkeys(words) if "/" in word]
    return [path for path in paths if path.is_file()]
