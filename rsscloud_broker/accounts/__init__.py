"""Accounts: who may do what, how people sign in, and with what programs prove who they are.

The package knows neither HTTP nor SQL.  ``web.callers`` reads cookies and headers, and
``AccountStore`` keeps the data.

``names``      which names an account may have
``passwords``  hashes passwords with argon2id, checks them, and remembers which were right
``portal``     ``twisted.cred``: the checkers that are asked, and the realm of accounts
``secrets``    makes the secrets of sessions and tokens, and what is derived from them
``administration``  implements ``IAccountAdministration``: what administrators do with accounts
``accounts``   implements ``IAccounts``: signing in and out, sessions, passwords, tokens
``sweeping``   deletes expired sessions and tokens, and has applications delete what they keep for
               removed accounts
"""

from rsscloud_broker.accounts.accounts import Accounts
from rsscloud_broker.accounts.administration import AccountAdministration
from rsscloud_broker.accounts.names import check_name
from rsscloud_broker.accounts.passwords import Hasher, Passwords, check_password
from rsscloud_broker.accounts.portal import AccountRealm, AnyOf, PasswordChecker
from rsscloud_broker.accounts.secrets import check_token, digest_of, new_secret, new_token
from rsscloud_broker.accounts.sweeping import AccountSweeper, RemovedAccounts
