"""Starts an image's ENTRYPOINT in a chroot, as its user, and runs its HEALTHCHECK: see image.sh.

::

    python3 contained.py IMAGE.json ROOT PORT

IMAGE.json is what ``buildah inspect`` says of the image, and ROOT has its files.  The broker
listens at PORT of loopback.  SIGTERM ends it after the HEALTHCHECK has succeeded.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

image, root, port = sys.argv[1:]
config = json.loads(Path(image).read_text(encoding="utf-8"))["Docker"]["config"]
user, group = (int(number) for number in config["User"].split(":"))
assert user, "the image runs as root"

os.chroot(root)
os.setgroups([])
os.setgid(group)
os.setuid(user)
os.chdir(config["WorkingDir"])
for name in ("/new", "/opt/broker/new"):
    try:
        Path(name).touch()
    except OSError:
        continue
    sys.exit(f"The user of the image can write {name}.")
environment = dict(line.split("=", 1) for line in config["Env"])
os.environ.clear()
os.environ.update(environment)

ending = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ending)
broker = subprocess.Popen(
    [*config["Entrypoint"], "--local", "--listen", f"tcp:{port}:interface=127.0.0.1"],
    preexec_fn=lambda: signal.pthread_sigmask(  # noqa: PLW1509 # there are no threads
        signal.SIG_UNBLOCK, ending
    ),
)
kind, *check = config["Healthcheck"]["Test"]
assert kind == "CMD", kind
check = [word.replace(":5337/", f":{port}/") for word in check]
end = time.monotonic() + 60
while subprocess.run(check, check=False).returncode:
    if time.monotonic() > end:
        broker.kill()
        sys.exit("The HEALTHCHECK does not succeed.")
signal.sigwait(ending)
broker.terminate()
sys.exit(broker.wait() not in {0, -signal.SIGTERM})
