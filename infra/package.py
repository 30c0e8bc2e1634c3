"""`python -m infra.package`: app.py, its packages and the resources around them, ready to be deployed from `build`."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from . import names
from .__main__ import add_options, given_options
from .api import allow_origins, bound_anonymous
from .functions import function_id
from .glue import JOBS_FOLDER, LAUNCHER, job_names
from .iam import add_iam
from .stages import read
from .template import Stack, StackError, template

BUILD = Path("build")
TEMPLATE = "template.json"
APP, LAYER, GLUE = "deployment.zip", "layer-deployment.zip", "glue"
_SERVICES = ("dynamodb", "lambda", "s3", "glue", "kms", "sns", "sqs", "sts")
"""The services whose descriptions botocore needs here; those of the others are nine tenths of the layer."""
_OWN_FILES = (TEMPLATE, APP, LAYER, "merge.json", "sam.json", "packaged.json")
_CHALICE = (sys.executable, "-m", "infra.wheels")
_DEPLOYMENTS = Path(".chalice/deployments")
_DESCRIPTION = re.compile(r"(?:.*/)?botocore/data/([^/]+)/.*")
_SOME_DAY = (1980, 1, 1, 0, 0, 0)
_NOT_RUN = re.compile(r".*\.(?:pyi|pyc)|.*/tests?/.*")


def package(stack: Stack, build: Path = BUILD) -> Path:
    """Write `template.json`, with both zips beside it; its path.

    Raises StackError where Chalice fails, with what it said."""
    description = describe(stack, build)
    for file in (APP, LAYER):
        slim(build / file, stack.python)
    if stack.glue:
        _pack_jobs(build / GLUE)
    return description


def describe(stack: Stack, build: Path) -> Path:
    """Write `template.json` as it is deployed, and return its path. Beside it are zips as Chalice makes them, which are
    not deployable: `package` does the rest. Other files in the folder stay, since they may be the user's."""
    build.mkdir(parents=True, exist_ok=True)
    for name in _OWN_FILES:
        (build / name).unlink(missing_ok=True)
    merge = build / "merge.json"
    merge.write_text(json.dumps(template(stack)))
    _chalice(stack.python, "package", "--stage", stack.stage, "--merge-template", str(merge), str(build))
    merge.unlink()
    sam = build / "sam.json"
    document = json.loads(sam.read_text())
    for name in set(names.FUNCTIONS) - set(stack.functions):  # Chalice describes all
        del document["Resources"][function_id(name)]
    if stack.iam:
        add_iam(document, stack.prefix, stack.web_acl)
    if stack.cors_origins:
        allow_origins(document, stack.cors_origins)
    bound_anonymous(document, min(stack.anonymous_per_second, stack.calls_per_second))
    sam.write_text(json.dumps(document, indent=2))
    return sam.rename(build / TEMPLATE)


def _pack_jobs(folder: Path) -> None:
    """The archive's jobs: the package in a zip, and for each a script that runs it."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{JOBS_FOLDER}.zip", "w", zipfile.ZIP_DEFLATED) as code:
        for source in sorted(Path(JOBS_FOLDER).rglob("*.py")):
            code.write(source, str(source))
    for job in job_names():
        (folder / f"{job}.py").write_text(LAUNCHER.format(folder=JOBS_FOLDER, job=job))


def slim(file: Path, python: str) -> None:
    """Take out of a zip what never runs, and compile the rest for a Python version: Lambda's disk is read-only, so that
    each cold start would compile it again. The same files give the same bytes: what did not change is not sent
    again."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(file) as old:
            old.extractall(folder, [name for name in old.namelist() if _is_wanted(name)])
        _compile(folder, python)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(str(path.relative_to(folder)), _SOME_DAY)
                entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                new.writestr(entry, path.read_bytes())


def _compile(folder: str, python: str) -> None:
    """By a Python of that version, the one that runs this or another on this machine."""
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    compiler = sys.executable if python == own else shutil.which(f"python{python}")
    if not compiler:
        print(
            f"Python {python}, which the stage runs, is not on this machine: its code is not compiled, so cold starts "
            f"take longer. Install python{python} and package again.",
            file=sys.stderr,
        )
        return
    options = ("-q", "-q", "-s", folder, "-r", "50", "--invalidation-mode", "unchecked-hash")
    subprocess.run([compiler, "-m", "compileall", *options, folder], capture_output=True)


def _is_wanted(name: str) -> bool:
    info = _DESCRIPTION.fullmatch(name)
    if info and info[1] not in _SERVICES:
        return False
    return not _NOT_RUN.fullmatch(name)


def _chalice(python: str, *arguments: str) -> None:
    # The template is for any region, but Chalice wants to hear of one.
    environment = {"AWS_DEFAULT_REGION": "us-east-1", **os.environ}
    # It fetches wheels for Lambda's processor by name and version: their hashes are checked, too.
    environment |= {"PIP_CONSTRAINT": str(Path("requirements.txt").absolute()), "PIP_REQUIRE_HASHES": "1"}
    _DEPLOYMENTS.mkdir(parents=True, exist_ok=True)
    with (_DEPLOYMENTS / "lock").open("w") as lock:
        # Chalice keeps zips there, and takes a half-written one for whole.
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [*_CHALICE, python, *arguments]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise StackError(f"Chalice could not make the package:\n{process.stdout}{process.stderr}")


def _summary(stack: Stack, build: Path) -> str:
    sizes = [f"{name} {(build / name).stat().st_size / 1e6:.2f} MB" for name in (APP, LAYER)]
    return f"{build / TEMPLATE}: stage {stack.stage}, prefix {stack.prefix}; {', '.join(sizes)}"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    add_options(parser)
    parser.add_argument("--build", type=Path, default=BUILD, help="the folder to write into (build)")
    options = parser.parse_args(arguments)
    try:
        stack = read(options.stage, given_options(options))
        package(stack, options.build)
    except StackError as error:
        print(error, file=sys.stderr)
        return 2
    print(_summary(stack, options.build))
    return 0


if __name__ == "__main__":
    sys.exit(main())
