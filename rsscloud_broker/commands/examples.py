"""The examples at the end of the help of each command; the manual has the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: By the name of the command.  Those below ``admin`` are in the operations of the API.
EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "account add": ("rsscloud-broker account add dave --config broker.toml --admin",),
    "account passwd": ("rsscloud-broker account passwd dave --config broker.toml",),
    "account list": ("rsscloud-broker account list --config broker.toml",),
    "account remove": ("rsscloud-broker account remove dave --config broker.toml",),
    "account link": ("rsscloud-broker account link dave --config broker.toml",),
    "account token add": (
        "rsscloud-broker account token add prometheus --config broker.toml --scope metrics "
        "--days 365",
    ),
    "account token list": ("rsscloud-broker account token list prometheus --config broker.toml",),
    "account token remove": (
        "rsscloud-broker account token remove prometheus 3 --config broker.toml",
    ),
    "admin": (
        "rsscloud-broker admin subscriptions --host reader.example --token-file token",
        'rsscloud-broker admin redeliver 7 --reason "its server is back" --token-file token',
    ),
    "backup": ("rsscloud-broker backup --data rsscloud-broker-data broker.tar",),
    "check-config": ("rsscloud-broker check-config --config broker.toml",),
    "doctor": (
        "rsscloud-broker doctor --config broker.toml",
        "rsscloud-broker doctor --broker http://localhost:5337 http://localhost:8000/feed.xml",
    ),
    "export": ("rsscloud-broker export --data rsscloud-broker-data subscriptions.json",),
    "feed-state": ("rsscloud-broker feed-state http://localhost:8000/feed.xml",),
    "follow": ("rsscloud-broker follow http://localhost:8000/recent --marker marker",),
    "import": (
        "rsscloud-broker import --data rsscloud-broker-data subscriptions.json",
        "rsscloud-broker import --config broker.toml "
        "--from sqlite:///rsscloud-broker-data/broker.sqlite",
    ),
    "listen": ("rsscloud-broker listen http://localhost:8000/feed.xml",),
    "nodes": ("rsscloud-broker nodes --config broker.toml",),
    "ping": (
        "rsscloud-broker ping http://localhost:8000/feed.xml",
        'rsscloud-broker ping --name "My blog" --url http://localhost:8000/ '
        "--rss http://localhost:8000/feed.xml",
    ),
    "plugins": ("rsscloud-broker plugins --config broker.toml",),
    "publish": ("rsscloud-broker publish http://localhost:8000/feed.xml http://localhost:8000/",),
    "resourcesync notify": (
        "rsscloud-broker resourcesync notify FILE --topic http://source.example/framework/ "
        "--hub http://localhost:5337/websub",
    ),
    "restore": ("rsscloud-broker restore --data restored broker.tar",),
    "serve": (
        "rsscloud-broker serve --local",
        "rsscloud-broker serve --config broker.toml --public-url https://broker.example",
    ),
    "sweep": ("rsscloud-broker sweep --data rsscloud-broker-data",),
    "topic": ("rsscloud-broker topic --data rsscloud-broker-data http://localhost:8000/feed.xml",),
}


def epilog(name: str) -> str:
    """The examples of a command, and of those below it, as click's help takes them."""
    return as_epilog(
        [
            each
            for key, some in EXAMPLES.items()
            if f"{key} ".startswith(f"{name} ")
            for each in some
        ]
    )


def as_epilog(examples: Sequence[str]) -> str:
    """Examples as click's help takes them: each on a line of its own."""
    heading = "Examples:" if len(examples) > 1 else "Example:"
    return "\b\n" + "\n".join((heading, *(f"  {each}" for each in examples)))
