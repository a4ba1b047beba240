"""The build step of the wheel: adds the grammar and the templates, and builds the parse tables.

`setup.cfg` names `BuildPy` as the command `build_py`. `packages = find:` finds what lies under `tilec/`; the two
folders of data at the top of the repository are added here and mapped by `package_dir` to `tilec.grammar` and
`tilec.templates`. Nothing imports this module at run time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py

DATA_PACKAGES = ("tilec.grammar", "tilec.templates")
"""Packages without Python code, found through `package_dir`."""


class BuildPy(build_py):
    """`build_py` with the data packages, and the parse tables written beside the copied grammar."""

    def initialize_options(self) -> None:
        """Add the data packages that exist to the distribution's list, once."""
        super().initialize_options()
        packages: list[str] = self.distribution.packages
        folders: dict[str, str] = self.distribution.package_dir or {}
        packages.extend(p for p in DATA_PACKAGES if p not in packages and Path(folders[p]).is_dir())

    def run(self) -> Any:
        """Copy everything, then build the parse tables (not for an editable install, which uses the cache)."""
        super().run()
        if not getattr(self, "editable_mode", False):
            build_tables(Path(self.build_lib))


def build_tables(copied: Path) -> None:
    """Write the parse tables beside the grammar of the packages in `copied`, by `python -m tilec.syntax.tables` there.

    Raises subprocess.CalledProcessError if the grammar has a conflict.
    """
    folder = str(copied.resolve())
    # what pip built for the build alone, such as lark, is on the path that it set
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tilec.syntax.tables"]
    subprocess.run(command, check=True, env=environment, cwd=folder)
