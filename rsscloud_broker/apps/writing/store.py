"""The part of the database that belongs to the authoring tool."""

from __future__ import annotations

from rsscloud_broker.apps.writing import rows, upload_rows
from rsscloud_broker.database.methods import reading, writing
from rsscloud_broker.interfaces import IDatabase


class PostStore:
    """Runs the functions of ``rows`` and ``upload_rows``, each as one transaction.

    :param database: for the tables of the application.
    """

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    author_of = reading(rows.author_of)
    author_named = reading(rows.author_named)
    authors = reading(rows.authors)
    ensure_author = writing(rows.ensure_author)
    forget = writing(rows.forget)
    forget_some = writing(rows.forget_some)
    is_former = reading(rows.is_former)
    snapshot = reading(rows.snapshot)
    published = reading(rows.published)
    find_post = reading(rows.find_post)
    all_posts = reading(rows.all_posts)
    post_with_file = reading(rows.post_with_file)
    apply = writing(rows.apply)
    categories = reading(rows.categories)
    keep_unsent = writing(rows.keep_unsent)
    unsent_of = reading(rows.unsent_of)
    drop_unsent = writing(rows.drop_unsent)
    begin_upload = writing(upload_rows.begin_upload)
    put_chunks = writing(upload_rows.put_chunks)
    get_chunk = reading(upload_rows.get_chunk)
    give_up = writing(upload_rows.give_up)
    upload_named = reading(upload_rows.upload_named)
    uploads = reading(upload_rows.uploads)
    remove_upload = writing(upload_rows.remove_upload)
    drop_unfinished = writing(upload_rows.drop_unfinished)
    lost_uploads = reading(upload_rows.lost_uploads)
    drop_chunks = writing(upload_rows.drop_chunks)
