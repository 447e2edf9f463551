"""A subscriber of WebSub made with Flask-WebSub: a program, which ``test_websub`` runs.

It listens on the port that is its argument.  ``POST /subscribe?topic=...&hub=...&secret=...``
subscribes and answers with an id; ``POST /unsubscribe?id=...`` ends that.  What happens is
printed, a JSON array on each line.
"""

from __future__ import annotations

import sys
from importlib import import_module
from json import dumps
from typing import Any

# By name: they are not installed where the types are checked.
flask = import_module("flask")
library = import_module("flask_websub.subscriber")

# The library hands secrets to hubs at https only; between two ports of this machine
# there is nobody to overhear them.
vars(library)["is_secure"] = lambda url: True

subscriber: Any = library.Subscriber(
    library.SQLite3SubscriberStorage("subscriptions.sqlite"),
    library.SQLite3TempSubscriberStorage("requests.sqlite"),
)


def show(*event: str) -> None:
    sys.stdout.write(f"{dumps(event)}\n")
    sys.stdout.flush()


def delivered(topic: str, key: str, body: bytes) -> None:
    show("delivered", topic, body.decode("latin-1"))


def succeeded(topic: str, key: str, mode: str) -> None:
    show("succeeded", topic, mode)


def failed(topic: str, key: str, reason: str) -> None:
    show("failed", topic, reason)


def subscribe() -> str:
    asked = flask.request.args
    key: str = subscriber.subscribe(
        topic_url=asked["topic"], hub_url=asked["hub"], secret=asked["secret"], lease_seconds=600
    )
    return key


def unsubscribe() -> str:
    subscriber.unsubscribe(flask.request.args["id"])
    return "asked"


if __name__ == "__main__":
    subscriber.add_listener(delivered)
    subscriber.add_success_handler(succeeded)
    subscriber.add_error_handler(failed)
    app = flask.Flask(__name__)
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    app.add_url_rule("/subscribe", view_func=subscribe, methods=["POST"])
    app.add_url_rule("/unsubscribe", view_func=unsubscribe, methods=["POST"])
    app.run("127.0.0.1", int(sys.argv[1]))
