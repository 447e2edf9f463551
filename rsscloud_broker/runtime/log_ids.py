"""The ids of warnings and errors in the log, which stay when a text is changed.

The manual explains each (``docs/operating/troubleshooting.rst``).  Lines with one meaning share an
id.  An id is never used for another meaning; a new line gets the next number of its table there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.logger import LogEvent

#: The formats of the lines, by their id.
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "RB101": ("{callback} is not verified: {error}",),
    "RB102": ("{callback} was not notified of {topic} by {protocol}: {reason}; {what_next}",),
    "RB103": ("{what} is given up ({name}): {why}.",),
    "RB104": (
        "Stopped calling {name} after {failures} failures in a row ({reason}); next try"
        " at {until:%H:%M:%S} UTC.",
    ),
    "RB105": (
        (
            "{callback} misses a pushed content of {topic}: its queue is full ({limit}). "
            "The content is in {feed}"
        ),
        "{callback} misses a pushed content of {topic}: its queue is full ({limit}).",
    ),
    "RB106": ("A notification of {topic} is odd: {why}",),
    "RB201": (
        "Courier {number} {why}: it is replaced, and the {count} requests that it had "
        "under way are {fate}.",
    ),
    "RB202": (
        "Courier {number} has ended ({reason}); another one is started in {seconds} s. "
        "The {count} requests that it had under way are {fate}.",
    ),
    "RB203": ("Courier {number} cannot be started: {error}; this is tried again in {seconds} s.",),
    "RB204": ("The process that starts couriers: {line}",),
    "RB205": ("Courier {number} has no connection: {error}",),
    "RB206": ("Courier {number}: {said}",),
    "RB207": ("Couriers can read the files that the broker can: {fault}.",),
    "RB208": ("Couriers can change the modes of files and start processes: {fault}.",),
    "RB209": ("A document of {owner} is given up ({function}): {why}.",),
    "RB210": (
        "A document of {owner} cannot be parsed ({function}), which is a fault of the "
        "broker or of a library: {what}",
    ),
    "RB211": ("No document of a stranger can be parsed now: {why}",),
    "RB212": ("Parser {number}: {said}",),
    "RB301": ("The feeds of events are put off: {error}",),
    "RB302": ("Old documents of a feed cannot be removed: {error}",),
    "RB303": ("The feeds of events could not be made; this is tried again.",),
    "RB401": ("The feed {url} is not pushed: {reason}.",),
    "RB402": ("A document from {source} with a wrong signature was ignored, for the feed {url}.",),
    "RB403": (
        "Feeds are tended later: {error}",
        "The feed {url} is tended later: {error}",
        "The feed {url} is removed later: {error}",
    ),
    "RB404": ("The feed {url} could not be tended.",),
    "RB501": ("{error}; it is read again in {delay:.0f} s.",),
    "RB502": ("{error}; given up: its subscribers do not hear of it.",),
    "RB503": (
        "{url}: {error}; its subscribers are not notified of changes until it is "
        "smaller, or body_limit in [topics] of the configuration is raised.",
    ),
    "RB504": ("The test feed gets no item: {error}.",),
    "RB601": (
        "The relay passes pings on without a name, since {url} means another machine "
        "everywhere else. Set public_url to the address by which other brokers reach "
        "this one; by it they recognise pings that have passed here, and do not send "
        "them back.",
    ),
    "RB602": (
        "Stopped passing pings on to {url} after {failures} failures in a row "
        "({reason}); next try at {until:%H:%M:%S} UTC.",
    ),
    "RB603": (
        "As many pings wait for {url} as may; newer ones are passed on when some of "
        "these are done with.",
    ),
    "RB604": ("{count} pings were not passed on to {url}: {reason}.",),
    "RB605": ("{url} cannot be followed: {reason}; it is tried again, next in {seconds:.0f} s.",),
    "RB606": ("{url} cannot be followed as it should be: {reason}",),
    "RB607": ("{url}: an entry of {document} is left out: {fault}; others are not logged.",),
    "RB608": (
        "Pings of {url} from {first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC may be missing:"
        " it was not read in between, and no archives are configured for it.",
    ),
    "RB609": (
        "{url}: the archive {archive} cannot be read: {reason}; it is tried again, "
        "until it is {hours} hours old.",
    ),
    "RB610": (
        "{url}: archives could not be read until they were too old ({count}); their "
        "pings are missing.",
    ),
    "RB611": (
        "{url}: the clock of its server is {seconds:.0f} s ahead of this one; the times"
        " of its pings are corrected.",
    ),
    "RB612": ("{url}: {count} of {records} records are left out; the first: {fault}.",),
    "RB613": ("Relaying to {url} is put off: {error}",),
    "RB701": (
        "This process goes on as a new node, and others have its work: it stood still "
        "for more than {seconds:.0f} s, or the server did not answer a commit.",
    ),
    "RB702": ("The heartbeat of this node is late: {reason}",),
    "RB703": ("The clock of this computer is {wrong}.",),
    "RB704": (
        "PostgreSQL ended a statement of the broker: {reason}. {advice} The statement, "
        "without its values: {statement}",
    ),
    "RB705": ("The heartbeat of this node failed; it is tried again.",),
    "RB706": ("Two clusters use one database: {said}.",),
    "RB707": ("A file for crawlers cannot be copied: {error}; it is tried again later.",),
    "RB708": ("Unavailable: {error}",),
    "RB709": ("A file could not be read to its end: {error}",),
    "RB710": (
        "{what} is put off: {error}",
        "Notifications are put off: {error}",
        "Polling is put off: {error}",
        "A poll of {url} is put off: {error}",
        "Reading {url} is put off: {error}",
        "{name}: {error}; it is tried again in its next turn.",
    ),
    "RB711": ("The statistics of the last minute are lost: {error}",),
    "RB712": ("The event log loses entries: {waiting} wait to be written, as many as may.",),
    "RB713": ("{name} cannot be read for those who watch: {error}",),
    "RB714": (
        "Sink {sink} failed at {event}: {error}",
        "The summary of the feed {url} is not stored: {error}",
        "The states of circuit breakers are not stored: {error}",
        "What is stored could not be moved along with the wall clock: {error}",
    ),
    "RB715": ("The broker accepts nothing new: {reason}.",),
    "RB716": (
        "{file} was removed or replaced by somebody. The broker reads and writes "
        "nothing until the same file is back.",
    ),
    "RB717": ("{file} cannot be brought up to date: {error}",),
    "RB718": ("{name}: the last run is not over yet; this one is left out.",),
    "RB719": (
        "The queue of sink {sink} is full ({size} events): further events are dropped "
        "until the sink has caught up; it then works from the store.",
    ),
    "RB720": ("The wall clock was set {direction} by {seconds:.0f} s.",),
    "RB801": ("No link to sign in could be made: {error}",),
    "RB802": ("What belongs to an account could not be sent to its end.",),
    "RB803": ("What belongs to the removed account {account} could not be deleted from {table}.",),
    "RB804": ("No link to sign in could be made.",),
    "RB901": (
        "public_url is not set: subscribers, hubs and crawlers are sent URLs under "
        "{url}, which leads nowhere on other machines; set public_url in the "
        "configuration (or --public-url) to the address by which others reach the "
        "broker.",
    ),
    "RB902": (
        "X-Forwarded-For comes from {peer}, which is not named in trusted_proxies, so "
        "the broker takes all callers behind it for one; if it is your reverse proxy, "
        'set trusted_proxies = ["{peer}"] in [http].',
    ),
    "RB903": (
        "The process may open {allowed} file descriptors (ulimit -n), but the "
        "configured number of connections needs {needed}; further connections wait or "
        "are refused.",
    ),
    "RB904": ("The doctor cannot test how requests arrive: the key cannot be stored: {error}",),
    "RB905": (
        "[log] of the configuration is ignored, but for the access log: this broker "
        "leaves its log to twistd (--logger, or twistd -y).",
    ),
    "RB906": (
        "The access log {path} cannot be written: {error}. Its lines are lost until it can.",
    ),
    "RB907": ("What has changed in these keys needs a restart: {keys}.",),
    "RB908": (
        "The configuration cannot be used: {fault}",
        "Nothing was changed: the broker goes on as it was.",
    ),
    "RB909": ("Reading the configuration again failed.",),
    "RB910": (
        "Taking over the configuration failed, perhaps with a part of it in use; "
        "restart the broker to be sure.",
    ),
    "RB911": (
        (
            "Not waiting any longer for: {parts}. What they were at is taken up after the "
            "next start."
        ),
        "Not waiting any longer for what these sinks do: {sinks}.",
        "Not waiting any longer for threads: {name}.",
    ),
    "RB912": ("Some pings may come into no archive: {warning}.",),
    "RB1001": (
        "A request to {path} failed.",
        "{method} failed.",
    ),
    "RB1002": ("The health of {part} could not be checked.",),
    "RB1003": (
        "Checking {url} failed; it is tried again later.",
        "Reading {url} again could not be planned.",
        "Topics that wait to be read could not be looked up.",
        "Checks that nobody handles could not be released.",
        "Reading {url} as a feed failed.",
        "A poll of {url} failed.",
    ),
    "RB1004": (
        "Verifying {callback} failed.",
        "Intents that wait to be verified could not be looked up.",
    ),
    "RB1005": (
        "Notifier {protocol} failed.",
        "Notifying of {topic} failed; it is resumed.",
        "Looking for what waits failed.",
        "Looking for fan-outs failed.",
        "Looking for notifications that are due failed.",
        "Making notifications for {what} due failed.",
        "Storing the states of circuit breakers failed.",
        "What came of some notifications could not be saved.",
        "The end of a request was not understood.",
        "Relaying to {url} failed.",
        "Following {url} failed.",
        "How far {url} was read is not stored.",
        "Subscribing to {url} failed.",
    ),
    "RB1006": (
        "{what} failed; it is tried again.",
        "{what} failed; it is tried again in its next turn.",
        "The writer of the store failed; it goes on with the next operations.",
    ),
    "RB1007": (
        "Looking up {host} failed.",
        "An expired item could not be removed.",
        "Courier {number} cannot be started.",
    ),
    "RB1008": ("Some lines of the access log {path} are lost.",),
    "RB1009": ("The feed {url} could not be removed.",),
    "RB1010": ("Some entries of the event log could not be written.",),
    "RB1011": (
        "Looking for what is new in {name} failed.",
        "A stream of {name} has ended.",
    ),
    "RB1012": (
        "Sink {sink} failed at {event}; it goes on with the next event.",
        "{name} failed; it is tried again in its next turn.",
    ),
    "RB1013": ("What is stored could not be moved along with the wall clock.",),
    "RB1014": ("Stopping {part} failed.",),
}

_IDS: Final = {text: number for number, formats in FORMATS.items() for text in formats}


def log_id(event: LogEvent) -> str | None:
    """The id of an event; None if it has none, as lines of the level ``info`` and of libraries."""
    return _IDS.get(str(event.get("log_format")))
