"""The part of the store that keeps accounts, sessions, API tokens and sign-in links.

Each method is one transaction on the database; the SQL is in ``accounts``.
"""

from __future__ import annotations

from rsscloud_broker.database.methods import reading, reading_in_batches, writing
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.storage import account_administration as administration
from rsscloud_broker.storage import accounts as rows


class AccountStore:
    """Keeps accounts, sessions, tokens and sign-in links, with the threads of a ``Store``.

    Each method is one transaction, and raises ``Unavailable`` if the database cannot be used now.
    Secrets are never stored, but their SHA-256 digests.

    :param threads: the threads that the store was made with, which it starts and stops.
    """

    def __init__(self, threads: StoreThreads) -> None:
        self._database = threads

    add_account = writing(rows.add_account)
    stored_password = reading_in_batches(rows.stored_passwords)
    accounts = reading(rows.accounts)
    set_password = writing(rows.set_password)
    rehash = writing(rows.rehash)
    remove_account = writing(rows.remove_account)
    census = reading(rows.census)
    ids_without_account = reading(rows.ids_without_account)
    add_session = writing(rows.add_session)
    session = reading(rows.session_of)
    touch_session = writing(rows.touch)
    sessions = reading(rows.sessions)
    end_session = writing(rows.end_session)
    end_sessions = writing(rows.end_sessions)
    add_token = writing(rows.add_token)
    token = reading(rows.token_of)
    touch_token = writing(rows.touch)
    tokens = reading(rows.tokens)
    remove_token = writing(rows.remove_token)
    remove_tokens = writing(rows.remove_tokens)
    add_link = writing(rows.add_link)
    account_of_link = reading(rows.account_of_link)
    redeem_link = writing(rows.redeem_link)
    sweep_accounts = writing(rows.sweep_accounts)
    account_summaries = reading(administration.account_summaries)
    account_summary = reading(administration.account_summary)
    invite = writing(administration.invite)
    reset = writing(administration.reset)
    change_account = writing(administration.change_account)
    remove = writing(administration.remove)
