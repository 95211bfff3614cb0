"""The package is described in pyproject.toml; this adds the shipped data files to the wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA_FOLDERS = ("models", "published", "tokenizers")


class BuildWithData(build_py):
    """Copies the data folders to engram_lab/data_files, where paths.py finds them."""

    def run(self) -> None:
        """Build the modules, then copy the data beside them; an editable install needs no copy."""
        super().run()
        if self.editable_mode:
            return
        for name in DATA_FOLDERS:
            source = Path("data") / name
            if source.is_dir():
                target = Path(self.build_lib) / "engram_lab" / "data_files" / name
                shutil.copytree(source, target, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
