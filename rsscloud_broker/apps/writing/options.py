"""``[apps.writing]`` of the configuration."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le


@frozen
class WritingOptions:
    """``[apps.writing]``.

    :ivar max_characters: how many characters a message has at most, and each item of its outline,
        as a person counts them.
    :ivar max_upload_bytes: how many bytes a file has at most that somebody uploads.
    :ivar quota_bytes: how many bytes the files of one account have at most, together.
    :ivar posts_per_minute: how often one account may publish, change or delete messages in a
        minute; and how many files it may upload.
    :ivar allow_plain_passwords: whether editors on other machines may send passwords and tokens
        over plain HTTP.
    """

    max_characters: int = field(default=140, validator=and_(ge(1), le(10_000)))
    max_upload_bytes: int = field(default=10_000_000, validator=and_(ge(1000), le(1_000_000_000)))
    quota_bytes: int = field(default=200_000_000, validator=ge(0))
    posts_per_minute: int = field(default=20, validator=and_(ge(1), le(10_000)))
    allow_plain_passwords: bool = False
