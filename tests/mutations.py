"""The mutations of ``make mutants``: each breaks something that matters to users.

They are written like patches.  After ``@@`` stand a module of the package and the tests that
notice; then for each mutation what goes wrong for users, the text that is in the module once, and
what is put in its place, if anything.  A text may be a part of its first and of its last line.

Anyone who changes one of these lines corrects its text here, or replaces the mutation with another
one that breaks the same.  See `tests.mutants`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.mutants import Mutation

_PATCHES = r"""
@@ accounts/accounts.py: accounts.test_accounts
One address may guess passwords as often as it likes.
-self._take_source(bucket_of(source)), "from your address")
-        if is_too
+0, "from your address")
+        if is_too
Many addresses together may guess the password of an account without end.
-self._limit(self._take_name(f"{name[:32]} {browser}"), "for this name")
+pass
Anybody can keep the owner of an account out of it.
-self._take_name(f"{name[:32]} {browser}")
+self._take_name(name[:32])
The session that somebody else prepared in this browser goes on.
-former = digest_of(attempt.former)
+former = b""
A session that was forgotten in some browser never ends.
-return now < min(session.expires_at, session.used_at + self._options.session_idle)
+return now < session.expires_at
@@ accounts/passwords.py: accounts.test_passwords
The time of an answer tells which accounts there are.
-right = self._hasher.matches(stored or of_nobody, password)
+right = bool(stored) and self._hasher.matches(stored, password)
@@ accounts/secrets.py: accounts.test_secrets accounts.test_accounts
Who reads the database can use all sessions and tokens.
-return sha256(secret.encode("ascii")).digest()
+return secret.encode("ascii")
@@ apps/events/options.py: apps.events.test_feeds
The feed is a topic, whose change is in the feed, which is thereby changed again.
-(f"{public_url}{PREFIX}/", *options.leave_out)
+(*options.leave_out,)
@@ apps/events/rows.py: apps.events.test_feeds
Two processes that cut the feeds append the same pings twice.
-if found is None or found.source != before:
-        return False
+if found is None:
+        return False
@@ apps/follows/archives.py: apps.follows.test_lists
Archives that cannot be read are asked for all the time.
-if self._clock.seconds() < self._not_before:
+if False:
@@ apps/river/pushing.py: apps.river.test_pushing
Anybody who learns the address of a callback puts items into rivers.
-if signature and await self._store_signed(feed, content):
+if await self._store_signed(feed, content):
@@ apps/writing/micropub.py: apps.writing.test_micropub
A client that deletes a message of another site deletes one here that has its number.
-if post is not None and self._writing.feeds.page_url(post) == url.rstrip("/"):
+if post is not None:
@@ core/broker.py: core.test_broker
Subscribers are not notified of what a weblogUpdates ping says.
-for topic, state in zip(record.watched, record.states, strict=True):
+for topic, state in ():
@@ core/broker.py: core.test_broker policy.test_access
A ping gets round the operator's patterns by another spelling of the URL.
-topics = tuple(map(normal_form, ping.named_urls))
+topics = tuple(ping.named_urls)
@@ core/broker.py: core.test_intents
A callback in a private network is accepted, and its owner thinks that all is well.
-await self._check_address(self._callbacks, intent.callback.url, intent.source)
+pass
@@ core/broker.py: core.test_intents policy.test_rate_limits core.test_broker
One source can fill the queue of all intents.
-limited=not self._admission.is_exempt(intent.source)
+limited=False
@@ core/broker.py: front_doors.test_passed_pings
Pings go round between brokers that relay to each other.
-if self._access.came_back(ping.origin):
+if False:
@@ core/bus.py: core.test_event_bus
A slow sink fills the memory.
-if len(self.waiting) >= self.size:
+if False:
A sink is given an event while it handles another one.
-        self.feeding = True
+        self.feeding = False
@@ core/change_detection.py: core.test_change_detection core.test_polling
Whatever the broker reads is recorded as a ping, and topics that ping are not polled.
-pinged=pending.cause.pinged,
+pinged=True,
@@ core/change_detection.py: core.test_change_detection
A topic that pinged once pings forever: each later fetch is taken for a ping.
-pending.cause = pending.cause.joined(cause)
+pending.cause = pending.cause.joined(
+    evolve(cause, pinged=cause.pinged or self.ping_generation(url) > 0))
The ping of a fetch that failed is forgotten when another fetch follows.
-following.cause = following.cause.joined(pending.cause.again)
+pass
@@ core/change_detection.py: core.test_broker core.test_intents core.test_change_detection
The first fetch of a topic is announced as a change.
-if record.changed and announce:
+if record.changed:
@@ core/intents.py: core.test_intents
After a start, a callback that asked anew is asked twice, the last time with old words.
-if key not in self._settling:  # a later
+if True:  # a later
An intent goes on that was replaced: the last word of a subscriber does not count.
-            earlier.cancel()
+            pass
Every start verifies all intents of the past again.
-            await self._store_retry(partial(self._store.remove_intent, pending.id))
+            pass
A host that does not answer fills the queue of intents.
-if not self._waiting.has_capacity_at(quota, source if limited else None):
+if not self._waiting.has_capacity():
A wall clock that was set back keeps subscribers waiting for years.
-min((pending.retry_at or 0.0) - self._clock.wall_seconds(), LONGEST_PAUSE)
+(pending.retry_at or 0.0) - self._clock.wall_seconds()
Each restart begins the attempts to reach a dead callback anew.
-attempts, about = pending.attempts,
+attempts, about = 0,
A courier that is killed at the last attempt takes an innocent's subscription with it.
-interrupted=failure.interrupted
+interrupted=False
@@ core/polling.py: core.test_polling
One host with many feeds is polled with many requests at once.
-if not self._under_way.has_capacity_at(quota):
+if False:
@@ core/polling_plan.py: core.test_polling_plan
Publishers that ping are polled as often as those that do not.
-    if _relies_on_pings(status, now, pace):
+    if False:
@@ core/retrying.py: core.test_change_detection
A feed whose server is away for a moment is given up after one attempt.
-if failures < len(RETRIES):
+if False:
@@ core/sharing.py: core.test_sharing core.test_change_detection
A ping during a fetch is answered with what was there before it: a change is lost.
-if pending is None or pending.turn.begun or pending.turn.withdrawn:
+if pending is None:
@@ core/sweeper.py: core.test_sweeper
Topics that the operator forbids go on for those who subscribed before.
-if self._access.limited:
+if False:
@@ core/topic_reader.py: core.test_pushed_topics outbound.test_own_topics
A redirect can take over a topic whose content only this broker pushes.
-if not self.reads(new_url):
+if False:
@@ core/verification.py: core.test_intents core.test_broker
Anybody can subscribe a victim, who confirms nothing.
-        if outcome.success:
-            return
+        if outcome.success or True:
+            return
A lease has ended before it begins.
-Lease(self._clock.wall_seconds(), intent.lease_seconds)
+Lease(0.0, intent.lease_seconds)
@@ core/verification.py: core.test_intents
Who subscribes while the topic changes is not notified of that change.
-digest = b""  # matches
+pass  # matches
@@ database/files.py: database.test_files
Under constant load the log beside the database grows forever.
-or _checkpoint(connection, "FULL", WAIT)
A broker goes on with a database that was removed: all that it stores is lost.
-self._problem = moved[0] if moved else ""
+self._problem = ""
@@ database/postgresql.py: database.test_postgresql
Options of an operator for the PostgreSQL server are dropped.
-url.normalized_query.get("options", ())
+()
A start fails while another process migrates a large database.
-connection.execute(select(func.set_config("lock_timeout", "0", True)))
+pass
@@ database/sqlite.py: database.test_sqlite storage.test_durability
A power cut loses what was acknowledged.
-PRAGMA synchronous=FULL
+PRAGMA synchronous=OFF
@@ database/visible_ids.py: database.test_postgresql
A reader goes on after a row before one with a smaller id is committed, and misses it.
-for low in announced
+for low in ()
@@ database/writer.py: database.test_writer database.test_sqlite
What was acknowledged is not committed: it is gone after a restart.
-            with self._engine.begin() as connection:
-                for function
+            with self._engine.connect() as connection:
+                for function
Pings are answered only when the next ones come.
-        self._queued.extend(gathered)
-        self._has_work.set()
+        self._queued.extend(gathered)
@@ database/writer.py: storage.test_nodes
What is claimed as PostgreSQL ends is done by nobody.
-self.in_doubt += 1
+pass
@@ database/writer.py: database.test_files
What was acknowledged is lost with the log beside the database.
-            self._files.is_changed = True
+            pass
@@ delivery/attempt.py: delivery.test_walk delivery.test_retries delivery.test_backlogs
A subscriber that unsubscribes is notified once more: the broker had read it before.
-return key in self.options and self.options[key] != subscription.options
+return self.options.get(key) not in (None, subscription.options)
A subscriber that changes its secret is notified with the old one.
-self.options[key] != subscription.options
+self.options[key] is None
A subscriber that renews and then unsubscribes is notified: only the first counts.
-        self.options[topic, callback] = options
+        self.options.setdefault((topic, callback), options)
@@ delivery/attempts.py: delivery.test_contents delivery.test_attempts
Notifications go on after a lease has ended.
-if subscription.lease.expires_at <= now:
+if False:
A change during a notification is not notified of: the subscriber has older content.
-earlier.changed_again |= earlier.begun and (changed or freed)
+pass
@@ delivery/breakers.py: delivery.test_breakers
Dead hosts are called for each notification, and hold up the rest.
-return self.failures >= THRESHOLD
+return False
When the pause is over, all notifications rush at a host instead of one probe.
-breaker.retry_at = now + self._pause(breaker.failures)
+breaker.retry_at = now
A host that is dead for weeks is called each minute.
-return backoff(self._first_pause, failures - THRESHOLD, LONGEST_PAUSE)
+return self._first_pause
A courier that is killed stops the calls of all hosts that it was calling.
-if outcome.interrupted:
+if False:
@@ delivery/breakers.py: delivery.test_breakers delivery.test_distribution
A start begins with calling every dead host again.
-            self._note_change(HostState(name, breaker.failures, until))
+            pass
@@ delivery/contents.py: delivery.test_contents
A content that was read just before a change is sent for hours after it.
-if content is not None and changes == self._changes:
+if content is not None:
@@ delivery/dispatch.py: delivery.test_dispatch
A slow host takes the slots of all others.
-        if host.slots_in_use < int(host.slots):
+        if True:
When a courier ends, all its hosts lose what they have earned.
-        elif job.went_well is not None:
+        else:
@@ delivery/notifiers/calling.py: delivery.notifiers.test_http_post delivery.notifiers.test_calls
Any page confirms an rssCloud registration, with whatever it answers.
-found = token.encode("ascii") in reply.body
+found = True
@@ delivery/notifiers/calling.py: delivery.notifiers.test_calling delivery.notifiers.test_http_post
A server behind a temporary redirect can end the subscription.
-reply.status == 410 and all(status in PERMANENT for status, _ in reply.hops)
+reply.status == 410
@@ delivery/notifiers/websub.py: delivery.notifiers.test_websub
Deliveries are not signed, and subscribers with a secret throw them away.
-if secret := options.get(websub.SECRET):
+if secret := "":
A page that echoes its query confirms subscriptions that nobody wants.
-exact = reply.body == challenge.encode("ascii")
+exact = challenge.encode("ascii") in reply.body
An open redirect somewhere confirms subscriptions for its site.
-OutboundRequest("GET", url), confirms, _NOT_NOW)
+OutboundRequest("GET", url, redirects=5), confirms, _NOT_NOW)
@@ delivery/outcomes.py: delivery.test_attempts
A courier that is killed at the last attempt takes an innocent's notification with it.
-interrupted=outcome.interrupted
+interrupted=False
@@ delivery/outcomes.py: delivery.test_attempts delivery.test_retries delivery.test_backlogs
A callback that asks for a pause (Retry-After) is called sooner.
-delay = max(pause, asked or 0.0)
+delay = pause
A dead callback of a busy topic is called forever.
-since is not None and now - since > longest
+False
@@ delivery/retries.py: delivery.test_retries delivery.test_backlogs
Retries stop for as long as somebody set the clock back.
-wall_seconds() + 2.0
+wall_seconds() + 2e9
Who unsubscribes while a retry is claimed is notified all the same.
-if self._lost_claims or is_outdated:
+if False:
@@ delivery/walk.py: delivery.test_walk
A walk notifies the same subscribers again and again, forever.
-next_slice = self._read(subscriptions[-1].id)
+next_slice = self._read(0)
@@ delivery/walk.py: delivery.test_walk delivery.test_distribution
After a crash everybody is notified again, from the beginning.
-progress.cursor = max(progress.cursor, subscription.id)
+pass
After a crash those are never notified whose calls were under way.
-saved, outstanding = len(self.unsaved), progress.outstanding()
+saved, outstanding = len(self.unsaved), []
Who unsubscribes while it lies in memory is notified all the same.
-if outdated.options and subscription in outdated:
+if False:
@@ delivery/walk.py: delivery.test_contents
A subscriber that renews with other options during a walk misses a pushed content.
-if self._fanout.pushed and subscription.wants_content and not subscription.ended:
+if False:
@@ delivery/walk.py: delivery.test_walk delivery.test_distribution delivery.test_retries delivery.test_faults
An older outcome that is saved late takes a waiting notification away.
-            await self._tools.when_saved()
@@ front_doors/change_lists.py: front_doors.test_change_lists
Crawlers transfer changes.xml in full each time.
-        if _client_has(request, version, now):
+        if False:
A crawler that asks by time misses a change in the same second.
-seconds = -(-modified_ns // 1_000_000_000)
+seconds = modified_ns // 1_000_000_000
A cache gives out compressed bytes for plain ones.
-suffix = f"-{coding}" if coding else ""
+suffix = ""
@@ front_doors/monitoring.py: front_doors.test_monitoring
Strangers read the metrics.
-if await self._may_read(request):
+if True:
The beginning of the token is enough.
-if self._token and compare_digest(self._token.encode(), token.encode()):
+if self._token.startswith(token):
@@ front_doors/rsscloud.py: front_doors.test_rsscloud_rest front_doors.test_rsscloud_calls
The pause between pings that the operator asks for is not kept.
-if now - self._last_pings.get(topic, float("-inf")) < self._pause:
+if False:
@@ front_doors/websub.py: front_doors.test_websub
Nobody can unsubscribe: the wish to is taken for a new subscription.
-unsubscribe=asked.mode == "unsubscribe"
+unsubscribe=False
A subscriber chooses a lease that never ends.
-            granted(asked.lease_seconds)
+            asked.lease_seconds or 10**9
@@ http/access_log.py: http.test_access_log
The access log holds the secrets in queries.
-target = request.uri.partition(b"?")[0]
+target = request.uri
A client writes fields of its own into the access log.
-return value[:1000].decode("latin-1").translate(_ESCAPES)
+return value[:1000].decode("latin-1")
@@ http/channel.py: http.test_channel
Who sends two lengths gets an empty answer and must guess what is wrong.
-if self._has_body_header:
+if False:
A client that stays connected is refused after 500 headers in all its requests.
-            self._head_bytes = self._headers = 0
@@ http/connections.py: http.test_channel
A client gets two answers to one bad request.
-        if self.refused:
-            return
-        self.refused = True
+        self.refused = True
@@ http/connections.py: http.test_limits http.test_limits_sockets
One address takes all connections.
-if counts and self._by_host[host] >= http.max_connections_per_address:
+if False:
@@ http/connections.py: front_doors.test_monitoring
Strangers behind a bare proxy count as programs on this machine.
-return None if is_public else True
+return True
@@ http/limits.py: http.test_limits
A body that says that it is too large is transferred in full.
-if length is not None and length > self._limit:
+if False:
A body in chunks fills the memory.
-if self._received > self._limit:
+if False:
Requests that drip in keep connections forever.
-        self._await_rest()
+        pass
@@ http/limits.py: http.test_strange_requests
A form of a million fields keeps the broker busy.
-return text.count(b"&") >= MAX_FIELDS
+return False
@@ http/shown_exchange.py: front_doors.test_websub_house
The page that answers a subscription shows the secret that signs notifications.
-(name, HIDDEN if name in secrets else value[:MAX_VALUE])
+(name, value[:MAX_VALUE])
@@ http/tracing.py: http.test_limits
Callers choose their own address by a header, and so get round every limit.
-if not self._connection.from_proxy:
+if False:
@@ http/tracing.py: front_doors.test_monitoring
Behind a proxy that nobody named, strangers read the metrics.
-return peer is not None and not any(map(self.requestHeaders.hasHeader, _OF_PROXIES))
+return peer is not None
@@ outbound/bodies.py: outbound.test_bodies outbound.test_large_bodies outbound.test_client
A feed without end fills the memory.
-if len(self._kept) + len(data) > self._limit:
+if False:
A callback's answer without end fills the memory.
-self._kept += data[:left]
+self._kept += data
@@ outbound/client.py: outbound.test_redirects outbound.test_client
A chain of redirects keeps the broker busy without end.
-if location and len(self._hops) < self._request.redirects:
+if location:
@@ outbound/connecting.py: outbound.test_connecting outbound.test_guarded_connections
A connection is used although it reached a private address instead of the one judged.
-if host != self._address:
+if False:
@@ outbound/couriers/bodies.py: outbound.couriers.test_bodies
A large content is forgotten before its first request: its subscribers get nothing.
-while len(self._bodies) > 1 and (
+while (
A courier keeps all contents, until it is replaced for lack of memory.
-            link.send(Forget(oldest))
+            pass
@@ outbound/couriers/carrying.py: outbound.couriers.test_carrying
A courier keeps all contents, although the broker says which it needs no more.
-self._bodies.pop(message.number, None)
+pass
@@ outbound/couriers/confinement.py: outbound.couriers.test_confinement
A stranger in a courier reads the database.
-        _check(_call(libc, _Call.RESTRICT_SELF, c_int32(ruleset), c_uint32(0)))
+        pass
Couriers of a broker that was killed stay, and keep its memory.
-_check(libc.prctl(Prctl.PDEATHSIG, signal.SIGKILL, 0, 0, 0))
+pass
A process whose parent has ended before it asked the kernel for its end lives on.
-if os.getppid() != parent:
+if False:
@@ outbound/couriers/courier.py: outbound.couriers.test_strange_couriers
On a busy machine couriers are ended before they have started, again and again.
-limits.silent if self._has_lived else limits.first_sign
+limits.silent
A stranger in a courier fills the disk with lines of the log.
-        if self._lines > MAX_LINES:
+        if False:
@@ outbound/couriers/courier.py: outbound.couriers.test_standard_error
Each courier that ends costs the broker a descriptor, until none is left.
-        self._standard_error.close()
+        pass
@@ outbound/couriers/courier.py: outbound.couriers.test_crew
The process that takes over from one that hangs lacks the contents of its requests.
-        self._bodies.clear()
@@ outbound/couriers/fork_server.py: outbound.couriers.test_fork_server
A courier that is stopped outlives the broker.
-                    confinement.end_with_parent(server)
+                    pass
@@ outbound/couriers/link.py: outbound.couriers.test_link
A stranger in a courier fills the broker's memory with one frame.
-if length > BESIDES_LAST_BODY and length > (most := self._longest()):
+if length > (most := 2**32):
A stranger in a courier fills the broker's memory with millions of small messages.
-Meta(max_length=MOST_MESSAGES)
+Meta()
A courier that has many answers at the same time is taken for a broken one.
-if len(frame) - size > USUAL_FRAME and len(batch) > 1:
+if False:
@@ outbound/couriers/parser.py: outbound.couriers.test_parsers
A document waits a minute for a parser that outlives the process which forked it.
-        elif isinstance(reason, ServerEnded):
+        elif False:
@@ outbound/couriers/parser_process.py: outbound.couriers.test_parsers
A document that a library takes forever for keeps a parser forever.
-signal.setitimer(signal.ITIMER_PROF, 2.0)
+pass
A document takes all memory of the machine.
-resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
+pass
@@ outbound/couriers/parsers.py: outbound.couriers.test_parsers
Slow documents of some owners keep all others waiting.
-if owner not in busy and (slow_may_begin or not self._is_slow(owner)):
+if owner not in busy:
A parser that cannot be started is started again without a pause.
-            self._not_before = now + 1.0
+            pass
@@ outbound/couriers/pending.py: outbound.couriers.test_pending
A stranger in a courier answers a call with a content, or the other way round.
-if not isinstance(message, request.answers):
+if False:
A content has another size than the one that is stored of it.
-case ReadDone() if message.body is not None and len(message.body) != message.size:
+case ReadDone() if False:
A courier that answers nothing but beats is never replaced: its hosts are not called.
-return oldest is not None and self._beats - oldest.since > longest
+return False
Nobody is notified that a courier has ended: what it had under way is never sent again.
-        for number, request in list(self._waiting.items()):
-            if keeps
+        for number, request in ():
+            if keeps
A call that freezes couriers is made forever, and the same subscribers notified again.
-            if keeps and not request.was_kept:
+            if keeps:
@@ outbound/couriers/spawning.py: outbound.couriers.test_spawning
A stranger in a courier reads the secrets in the operator's environment.
-{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
+dict(os.environ)
@@ outbound/couriers/system_calls.py: outbound.couriers.test_confinement
A stranger in a courier makes a namespace in which it is root.
-_Clone.THREAD, of=_Clone.NEW | _Clone.THREAD
+_Clone.THREAD, of=_Clone.THREAD
@@ outbound/exchanges.py: outbound.test_client outbound.test_guarded_connections outbound.test_agent
A name that leads to a private address, too, is called by its other address.
-                self._exchanger.guard.check(address, self._target.port)
+                pass
@@ outbound/guard.py: outbound.test_guard
Strangers read the metadata service of the cloud that the broker runs in.
-        ("169.254.0.0/16", "link-local"),
Allowed IPv4 networks are not found in IPv6 addresses that stand for them.
-_MAPPED + packed[12:] if packed[:12] == _NAT64 else packed
+packed
The broker can be had to call itself.
-if port in self._own and self._is_own(address, packed, port):
+if False:
@@ outbound/topic_fetcher.py: outbound.test_topic_fetcher outbound.test_fetching
Every feed is transferred in full although nothing is new.
-agent | asked,
+agent,
A feed that moved is taken for unchanged.
-if reply.status == 304 and _moved_to(hops):
+if False:
The second of two changes within a second is never seen.
-(now if sent is None else sent) - modified < 2.0
+False
@@ outbound/urls.py: outbound.test_urls
Strangers have the broker write lines to mail servers and databases.
-    if digits:
-        check_port(port)
URLs with user names and passwords are called, stored and shown.
-if parts.username is not None or parts.password is not None:
+if False:
@@ policy/access.py: policy.test_access
With an empty list of patterns everything is allowed instead of nothing.
-or r"(?!)")
+or r"")
@@ policy/addresses.py: policy.test_rate_limits
Anyone who has an IPv6 network has as many buckets as addresses: no limit.
-return f"{int(address) >> 64:x}/64"
+return source
@@ policy/limiter.py: policy.test_limiter
One source with many calls has all slots before anybody else has one.
-            self._sources.move_to_end(source)
@@ policy/rate_limits.py: policy.test_rate_limits
A source may ping and register as often as it likes.
-if missing > self._seconds_per_token / 100:
+if missing > self._seconds_per_token * 100:
A source may fill the disk with pings, slowly.
-pause = self._pings_of_day.take(bucket)
+pause = 0
Many sources can have the broker call one victim without end.
-hosts.add(_host_of(intent.callback.url))
+pass
One host may have subscriptions without end.
-if quota.left < 1:
+if quota.left < -1000:
A caller that used up its pings of a day is asked to come back after half a day.
-longest_pause=DAY_PAUSE
+longest_pause=inf
@@ simplefeed/follower.py: simplefeed.test_follower
A follower misses entries, if the one that it processed last comes again later.
-            position = None
-            if document.digest
+            if document.digest
A follower that begins in an archive misses entries, if its last one comes again later.
-            after = None
@@ simplefeed/processing.py: simplefeed.test_follower
After a crash a follower processes entries again that it had processed long before.
-if self._unsaved >= batch or is_late:
+if self._unsaved >= batch:
@@ sinks/archive.py: sinks.test_archive
Pings that are committed late are in no archive.
-if archived is None or archived < records:
+if archived is None:
Pings are pruned that are in no archive: they are lost.
-            await self._write_missing(0, keep_from)
@@ sinks/change_list.py: sinks.test_change_list
shortChanges.xml reaches back further than it says.
-SHORT_SECONDS: Final = 5 * 60
+SHORT_SECONDS: Final = 5 * 61
The option of how far changes.xml reaches back does nothing.
-"changes.xml": options.hours * 3600
+"changes.xml": 3 * 3600
Each node makes other change lists, with other ETags.
-        until = self.period_began()
+        until = self._parts.clock.wall_seconds()
@@ sinks/relay_worker.py: sinks.test_relay
Each ping is sent back to the broker that it came from.
-if has_passed(ping.origin, self.target.url):
+if False:
A target that refuses all pings has the broker remember them all.
-if self._waiting.is_full:
+if False:
@@ storage/check_claims.py: storage.test_nodes
A node that was taken for dead puts off the check that another one handles.
-.where(topic.c.id == key_of(url), topic.c.check_node_id == node)
+.where(topic.c.id == key_of(url))
@@ storage/composed_methods.py: storage.test_nodes
A process that stood still replaces newer files for crawlers by its own.
-        if job and not jobs.lock_claim(conn, job, self._node):
+        if False:
@@ storage/deliveries.py: storage.test_store
A subscription that was renewed meanwhile is removed by an old 410.
-subscription.c.granted_at == bindparam("granted")
+subscription.c.granted_at >= bindparam("granted") - 10**18
Errors of weeks add up although the callback answers, until it is dropped.
-consecutive_errors=0, last_error="", last_error_at=None, dropping=false()
+dropping=false()
@@ storage/deliveries.py: storage.test_nodes
A process that stood still spoils what another node does in its place.
-held = {key for key, node in conn.execute(rows) if node == claims[key]}
+held = {key for key, _ in conn.execute(rows)}
@@ storage/due.py: storage.test_store
What is claimed is claimed again: two attempts for one notification.
-_FREE = pending.c.node_id.is_(None)
+_FREE = pending.c.due_at > 0
What is due is worked on twice at the same time.
-    conn.execute(claimed.values(node_id=node))
@@ storage/intents.py: storage.test_store
After each restart a callback that does not answer has all of its attempts again.
-.values(attempts=attempts, retry_at=to_micros(retry_at))
+.values(retry_at=to_micros(retry_at))
A restart calls a callback at once that is to be left alone until its next attempt.
-attempts=attempts, retry_at=to_micros(retry_at)
+attempts=attempts
@@ storage/jobs.py: storage.test_nodes
A process that stood still says that what another node does is done.
-done = update(job).where(_claimed_by(name, here))
+done = update(job).where(job.c.name == name)
@@ storage/nodes.py: storage.test_nodes delivery.test_retries
What a killed process had claimed is never sent.
-others = list(conn.execute(select(node.c.id)).scalars())
+others: list[int] = []
@@ storage/pings.py: storage.test_store storage.test_pings
A blog engine that pings again and again fills the change lists.
-repeat = any(abs(time - received_at) < window for time in times)
+repeat = False
@@ storage/recording.py: storage.test_store
Every fetch notifies everybody, changed or not.
-return (self.row.digest, self.row.size) != now or self.news
+return True
A ping that came while the topic was read is forgotten.
-row.check_requested_at is not None and row.check_requested_at <= read_at
+row.check_requested_at is not None
@@ storage/subscriptions.py: storage.test_store
Who renews a subscription after an outage loses it at the top of the hour.
-update(subscription).where(subscription.c.id == key).values(values)
+update(subscription).where(subscription.c.id == key).values(wants_content=True)
To unsubscribe by one protocol ends the subscriptions by the others.
-        subscription.c.protocol == callback.protocol,
@@ storage/sweeping.py: storage.test_store core.test_sweeper
Leases never end.
-subscription.c.expires_at <= to_micros(now)
+subscription.c.expires_at < 0
@@ storage/walks.py: storage.test_nodes
A process that stood still sets a walk back, or ends it too early.
-.where(fanout.c.id == bindparam("key"), fanout.c.node_id == bindparam("node"))
+.where(fanout.c.id == bindparam("key"))
@@ storage/walks.py: storage.test_store
What a publisher pushed is not delivered if the topic changes meanwhile.
-return or_(rows.c.pushed, rows.c.begun, ~supersedes.exists())
+return or_(rows.c.begun, ~supersedes.exists())
@@ util/atomic_files.py: sinks.test_files sinks.test_change_list
Crawlers see half a file.
-            os.replace(target.siblingExtension(self._unfinished).path, target.path)
+            target.setContent(target.siblingExtension(self._unfinished).getContent())
@@ util/caches.py: util.test_caches delivery.test_contents
Contents fill the memory.
-while self.size > self._most:
+while False:
@@ util/cluster_jobs.py: util.test_cluster_jobs
If a node dies at a job, nobody does it before the next full minute or hour.
-        if turn.is_others:
-            self._claim_soon()
@@ util/twisted_overrides/uvloop_reactor.py: util.twisted_overrides.test_uvloop_reactor
Each notification leaves objects that only the collector of garbage removes.
-            del self._receive, self.write
+            pass
@@ util/urls.py: util.test_urls
Two spellings of one feed are two topics: a ping of one does not reach the other's subscribers.
-return character if character in _UNRESERVED else match[0].upper()
+return match[0].upper()
http://example.org:80/ and http://example.org/ are two topics.
-return "" if number == _DEFAULT_PORTS[scheme] else f":{number}"
+return f":{number}" if port else ""
A path with dots gets round the operator's patterns.
-path = _resolve_dots(encoded(
+path = str(encoded(
@@ web/callers.py: web.test_sign_in web.test_account_page
Other sites can act in the name of people who have signed in.
-if not hmac.compare_digest(_sent_token(request), caller.csrf.encode("ascii")):
+if False:
@@ web/callers.py: web.test_sign_in
A link to the sign-in page leads people to any site.
-return text if is_local else otherwise
+return text
@@ web/feed_answers.py: apps.events.test_documents
A client misses a change in the same second as the one before.
-int(modified_at) > now
+int(modified_at) < 0
@@ web/pages.py: web.test_topic_page web.test_public_lists web.test_pages
A link that a stranger chose runs a script in the page.
-if not url.lower().startswith(("http://", "https://")):
+if not url:
@@ web/public_lists.py: web.test_public_lists
The list of topics tells everybody the passwords in their URLs.
-if "@" not in urlsplit(topic.url).netloc
+if topic.url
@@ web/streams.py: web.test_streams
Each address that ever read a stream costs memory until the broker stops.
-            if not self._taken[key]:
-                del self._taken[key]
A large event is copied for each browser that does not read.
-self.request.write(data[start : start + PIECE])
+self.request.write(data if start == 0 else b"")
@@ wire/change_list_reader.py: wire.test_change_list_reader
One old record in a followed list hides that pings are missing.
-if reached - at > 600.0:
+if False:
@@ wire/codings.py: wire.test_codings
A few kilobytes that become gigabytes fill the memory.
-part = decoder.decompress(encoded[at : at + size], room + 1)
+part = decoder.decompress(encoded[at : at + size])
@@ wire/http_dates.py: delivery.notifiers.test_calling
A callback can have itself left alone for a thousand years.
-return min(float(text), MAX_RETRY_AFTER)
+return float(text)
@@ wire/websub.py: wire.test_websub
Secrets are taken that the specification forbids.
-if len(secret.encode()) >= SECRET_BYTES:
+if len(secret.encode()) > SECRET_BYTES:
rsscloud-broker listen believes forged deliveries.
-return hmac.compare_digest(digest.strip().lower().encode(), expected.encode())
+return True
@@ wire/xml.py: wire.test_xml wire.test_feed wire.test_soap wire.test_xmlrpc
A DOCTYPE full of entities keeps the broker busy before it is refused.
-if not legible or b"<!DOCTYPE" in document:
+if False:
A call of a million elements keeps the broker busy.
-root.xpath(f"count(//*) > {max_elements}")
+False
@@ wire/xml.py: wire.test_xml wire.test_soap wire.test_xmlrpc
Deeply nested calls exhaust the stack.
-"/*" * (max_depth + 1)
+"/*" * (max_depth + 100)
"""  # noqa: E501 # the names of tests are long


#: In a hunk: what goes wrong, the text, and what is put in its place.
_MUTATION = re.compile(r"((?:[^-+].*\n)+)((?:-.*\n)+)((?:\+.*\n)*)")


def _read(patches: str) -> Iterator[Mutation]:
    for hunk in patches.split("\n@@ ")[1:]:
        place, _, changes = hunk.partition("\n")
        file, _, tests = place.partition(": ")
        assert not _MUTATION.sub("", f"{changes}\n").strip(), (
            f"some lines are no mutation of {file}"
        )
        for words, old, new in _MUTATION.findall(f"{changes}\n"):
            yield Mutation(file, _code(old), _code(new), tests, " ".join(words.split()))


def _code(lines: str) -> str:
    """Marked lines without their marks, and without the end of the last one."""
    return re.sub("(?m)^[-+]", "", lines).removesuffix("\n")


MUTATIONS = tuple(_read(_PATCHES))
