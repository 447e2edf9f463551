"""Starts the broker as its systemd unit says, in a system without systemd: see try.sh."""

from __future__ import annotations

import os
import shlex
import sys
from configparser import ConfigParser

unit = ConfigParser(interpolation=None, strict=False, delimiters="=")
unit.optionxform = str  # type: ignore[assignment] # keys have capitals
with open("/usr/lib/systemd/system/rsscloud-broker.service", encoding="utf-8") as file:
    # A line that ends with a backslash goes on in the next one.
    unit.read_string(file.read().replace("\\\n", " "))
service = unit["Service"]
user = f"--reuid={service['User']}", f"--regid={service['Group']}", "--init-groups"
os.chdir(service["WorkingDirectory"])
line = ["setpriv", *user, *shlex.split(service["ExecStart"])]
os.execvp(sys.executable, [sys.executable, "/first_use.py", sys.argv[1], *line])
