"""The examples at the end of the help of each command; the manual has the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: What follows the name of the program, by the name of the command.  Those below ``admin`` are in
#: the operations of the API.
EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "account add": ("account add dave --config broker.toml --admin",),
    "account passwd": ("account passwd dave --config broker.toml",),
    "account list": ("account list --config broker.toml",),
    "account remove": ("account remove dave --config broker.toml",),
    "account link": ("account link dave --config broker.toml",),
    "account token add": (
        "account token add prometheus --config broker.toml --scope metrics --days 365",
    ),
    "account token list": ("account token list prometheus --config broker.toml",),
    "account token remove": ("account token remove prometheus 3 --config broker.toml",),
    "admin": (
        "admin subscriptions --host reader.example --token-file token",
        'admin redeliver 7 --reason "its server is back" --token-file token',
    ),
    "backup": ("backup --data rsscloud-broker-data broker.tar",),
    "check-config": ("check-config --config broker.toml",),
    "doctor": (
        "doctor --config broker.toml",
        "doctor --broker http://localhost:5337 http://localhost:8000/feed.xml",
    ),
    "export": ("export --data rsscloud-broker-data subscriptions.json",),
    "feed-state": ("feed-state http://localhost:8000/feed.xml",),
    "follow": ("follow http://localhost:8000/recent --marker marker",),
    "import": (
        "import --data rsscloud-broker-data subscriptions.json",
        "import --config broker.toml --from sqlite:///rsscloud-broker-data/broker.sqlite",
    ),
    "listen": ("listen http://localhost:8000/feed.xml",),
    "nodes": ("nodes --config broker.toml",),
    "ping": (
        "ping http://localhost:8000/feed.xml",
        'ping --name "My blog" --url http://localhost:8000/ --rss http://localhost:8000/feed.xml',
    ),
    "plugins": ("plugins --config broker.toml",),
    "publish": ("publish http://localhost:8000/feed.xml http://localhost:8000/",),
    "resourcesync notify": (
        "resourcesync notify FILE --topic http://source.example/framework/ "
        "--hub http://localhost:5337/websub",
    ),
    "restore": ("restore --data restored broker.tar",),
    "serve": (
        "serve --local",
        "serve --config broker.toml --public-url https://broker.example",
    ),
    "sweep": ("sweep --data rsscloud-broker-data",),
    "topic": ("topic --data rsscloud-broker-data http://localhost:8000/feed.xml",),
}


def epilog(name: str) -> str:
    """The examples of a command, and of those below it, as click's help takes them."""
    found = (some for key, some in EXAMPLES.items() if f"{key} ".startswith(f"{name} "))
    return as_epilog([each for some in found for each in some])


def as_epilog(examples: Sequence[str]) -> str:
    """Examples as click's help takes them: each on a line of its own, after the program's name."""
    heading = "Examples:" if len(examples) > 1 else "Example:"
    return "\b\n" + "\n".join((heading, *(f"  rsscloud-broker {each}" for each in examples)))
