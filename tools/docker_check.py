"""Does the Dockerfile build and serve, without Docker? As root: `python -m tools.docker_check MODEL PHOTO`.

In place of the base image there is a fresh Debian with its own Python, made by debootstrap. The Dockerfile's own lines
then run in it: RUN in a chroot, as the USER and in the WORKDIR that it names; COPY of what .dockerignore lets through;
at last ENTRYPOINT with CMD in a network of its own, which reaches nothing. There the HEALTHCHECK is asked, and a photo
is sent. What this cannot show is that the base image itself is as expected.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = "python3,python3-pip,ca-certificates"
TOKEN = "a-token-of-the-check"
#: What a machine may need to reach its package registry: settings, certificates, folders of wheels.
BROUGHT = ("/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
FOLDERS = ("/opt", "/proc", "/dev")
ASK = """
import json, sys, urllib.request, uuid
mark = uuid.uuid4().hex
start = f'--{mark}\\r\\nContent-Disposition: form-data; name="photos"; filename="photo.jpg"\\r\\n\\r\\n'
body = start.encode() + sys.stdin.buffer.read() + f"\\r\\n--{mark}--\\r\\n".encode()
headers = {"Content-Type": f"multipart/form-data; boundary={mark}", "Authorization": "Bearer " + sys.argv[1]}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[2] + "/v1/predict", body, headers)).read().decode())
"""


@dataclass
class Container:
    """A root folder, and what the lines so far have set."""

    root: Path
    user: str = "root"
    folder: str = "/"
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def inside(self, command: list[str], *, before: str = "", **settings: str) -> list[str]:
        """The command line that runs a command in it; `before` is done outside, in the same namespaces."""
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        known = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, **settings}
        known |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        mounts = "".join(f"mount --rbind {name} {self.root}{name}; " for name in FOLDERS)
        there = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in known.items()), "sh", "-c"])
        line = shlex.quote(f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}")
        script = f"set -e; {before} {mounts} exec chroot --userspec={self.user} {self.root} {there} {line}"
        return ["unshare", "--mount", *(["--net"] if "lo up" in before else []), "sh", "-c", script]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model of the bundled encoder, to be served")
    parser.add_argument("photo", type=Path)
    parser.add_argument("--keep", type=Path, help="make the root folder here, and leave it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        container = Container(given.keep or Path(scratch) / "root")
        for name, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
            print(f"{name} {rest[:100]}", flush=True)
            follow(container, name, rest)
        shutil.copytree(given.model, container.root / "model")
        serve(container, given.photo.read_bytes())
    print("the Dockerfile's lines run, and what they make serves")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Name and rest of each instruction; comments are left out, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def follow(container: Container, name: str, rest: str) -> None:
    """Do what one instruction says."""
    if name == "FROM":
        make_base(container.root, rest)
    elif name == "RUN":
        subprocess.run(container.inside(["sh", "-c", rest]), check=True)
    elif name == "WORKDIR":
        container.folder = rest
        (container.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif name == "COPY":
        *sources, target = rest.split()
        copy(sources, container.root / PurePosixPath(container.folder, target).as_posix().lstrip("/"))
    elif name == "USER":
        container.user = rest
    elif name == "ENTRYPOINT":
        container.entry = json.loads(rest)
    elif name == "CMD":
        container.command = json.loads(rest)
    elif name == "HEALTHCHECK":
        container.health = json.loads(rest.partition("CMD")[2])
    elif name != "EXPOSE":
        raise SystemExit(f"this check does not know the instruction {name}: teach it")


def make_base(root: Path, image: str) -> None:
    """A fresh Debian whose Python has the version that the base image promises, called as it is called there."""
    wanted = re.fullmatch(r"python:(\d+\.\d+)-slim", image)
    if wanted is None:
        raise SystemExit(f"this check stands in for python:VERSION-slim, got {image}")
    make = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), MIRROR]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    python = root / f"usr/lib/python{wanted[1]}"
    if not python.is_dir():
        raise SystemExit(f"{SUITE} has no Python {wanted[1]}: choose the suite that has")
    (python / "EXTERNALLY-MANAGED").unlink(missing_ok=True)  # the image's own Python has no such mark
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for place in map(Path, BROUGHT):
        if place.exists():
            shutil.copyfile(place, root / place.relative_to("/"))


def copy(sources: list[str], target: Path) -> None:
    """What .dockerignore lets through; a folder's content goes into the target."""
    for source in sources:
        place, found = ROOT / source, False
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and sent(path.relative_to(ROOT).as_posix()):
                out = target / (path.name if place.is_file() else path.relative_to(place))
                out.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, out)
                found = True
        if not found:
            raise SystemExit(f"COPY {source}: nothing of it gets through .dockerignore")


def sent(path: str) -> bool:
    """Whether .dockerignore lets a file through: the last pattern that fits it, or a folder above it, decides."""
    known = True
    above = [path, *(parent.as_posix() for parent in PurePosixPath(path).parents)][:-1]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip().removeprefix("!").rstrip("/")
        bare = pattern.removeprefix("**/")
        fits = any(fnmatch.fnmatch(name, pattern) or name.rpartition("/")[2] == bare != pattern for name in above)
        known = line.startswith("!") if pattern and fits else known
    return known


def serve(container: Container, photo: bytes) -> None:
    """ENTRYPOINT with CMD, without a network: it must be healthy, answer about the photo, and stop in peace."""
    line = [*container.entry, *container.command]
    server = subprocess.Popen(container.inside(line, before="ip link set lo up;", CCR_TOKEN=TOKEN))
    near = ["nsenter", "--target", str(server.pid), "--net"]
    try:
        for _ in range(180):
            time.sleep(1)
            if server.poll() is not None:
                raise SystemExit(f"the server left with code {server.returncode}")
            asked = subprocess.run([*near, *container.inside(container.health)], capture_output=True, check=False)
            if asked.returncode == 0:
                break
        else:
            raise SystemExit(f"not healthy after three minutes: {asked.stderr.decode()[-500:]}")
        ask = ["python", "-c", ASK, TOKEN, "http://127.0.0.1:8000"]
        answer = subprocess.run([*near, *container.inside(ask)], input=photo, capture_output=True, check=True)
        (result,) = json.loads(answer.stdout)["results"]
        print(f"healthy; the photo: {json.dumps(result)[:200]}")
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    if code:
        raise SystemExit(f"SIGTERM must end the server with code 0, got {code}")


if __name__ == "__main__":
    sys.exit(main())
