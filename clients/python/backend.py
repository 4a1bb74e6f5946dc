"""Builds the package with the standard library alone, so that `pip install` of this folder fetches nothing. See PEP 517."""

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

here = Path(__file__).resolve().parent
about = (here / "pyproject.toml").read_text(encoding="utf-8")
module = (here / "src/toolpost/__init__.py").read_text(encoding="utf-8")


def field(name, text=about):
    return re.search(rf'^{name} = "([^"]*)"', text, re.MULTILINE).group(1)


name, version = field("name"), field("__version__", module)


def metadata():
    head = {
        "Metadata-Version": "2.4",
        "Name": name,
        "Version": version,
        "Summary": field("description"),
        "License-Expression": field("license"),
        "License-File": "LICENSE",
        "Requires-Python": field("requires-python"),
        "Description-Content-Type": "text/markdown",
    }
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    return lines + "\n" + (here / "README.md").read_text(encoding="utf-8")


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = f"{name}-{version}.dist-info"
    files = {f"toolpost/{p}": (here / "src/toolpost" / p).read_bytes() for p in ("__init__.py", "py.typed")}
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: toolpost\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/licenses/LICENSE"] = (here / "LICENSE").read_bytes()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            z.writestr(path, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    top = f"{name}-{version}"
    with tarfile.open(Path(sdist_directory) / f"{top}.tar.gz", "w:gz") as t:
        for path in ("pyproject.toml", "backend.py", "README.md", "LICENSE", "src/toolpost/__init__.py", "src/toolpost/py.typed"):
            t.add(here / path, f"{top}/{path}")
        data = metadata().encode()
        member = tarfile.TarInfo(f"{top}/PKG-INFO")
        member.size = len(data)
        t.addfile(member, io.BytesIO(data))
    return f"{top}.tar.gz"
