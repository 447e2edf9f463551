#!/bin/sh
# Tries a Debian package in a new, minimal Debian: it is installed, started by the line of its
# systemd unit, upgraded with its data and its configuration, removed and purged.
#
#     sh release/debian/try.sh NEW.deb [OLD.deb]
#
# Without OLD.deb, the upgrade is from the same files under a smaller version.  This takes two
# minutes and needs root, debootstrap and the network.  The new system is a directory, which goes
# afterwards.  systemd does not run in it, so a program beside this one starts the broker.
set -eu
new=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
system=$work/system
cleanup() {
    umount -l "$system/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

if [ $# -gt 1 ]; then
    old=$(realpath "$2")
else
    old=$work/old.deb
    dpkg-deb --raw-extract "$new" "$work/old"
    sed -i 's/^Version: .*/&~old/' "$work/old/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$work/old" "$old" >/dev/null
    rm -r "$work/old"
fi

echo "Making a new Debian: about a minute."
sh "$here/new-system.sh" "$system"
mount -t proc proc "$system/proc"
cp "$old" "$system/old.deb"
cp "$new" "$system/new.deb"
cp "$here/../first_use.py" "$here/start.py" "$system/"

inside() {
    chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}
apt() {
    # Nobody is asked whether a changed configuration file stays: it does.
    inside apt-get -qq -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold -y \
        --no-install-recommends "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
}
check() {
    "$@" || { echo "Failed: $*" >&2; exit 1; }
}
start() {
    inside python3 /start.py /state >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    tail -n 1 "$work/log"
}

echo "Installing $(dpkg-deb --field "$old" Version)"
apt update
apt install /old.deb
check inside rsscloud-broker --version
config=$system/etc/rsscloud-broker/broker.toml
cat >>"$config" <<'END'
[egress]
allow_topics = ["127.0.0.0/8"]
allow_callbacks = ["127.0.0.0/8"]
END
start
check test "$(stat -c %U "$system/var/lib/rsscloud-broker/broker.sqlite")" != root

echo "Upgrading to $(dpkg-deb --field "$new" Version)"
apt install /new.deb
check grep -q '^allow_topics' "$config"
for page in man1/rsscloud-broker.1 man5/rsscloud-broker.toml.5; do
    check test -s "$system/usr/share/man/$page.gz"
done
check inside bash -c '. /usr/share/bash-completion/completions/rsscloud-broker
    export COMP_WORDS="rsscloud-broker check-" COMP_CWORD=1 _RSSCLOUD_BROKER_COMPLETE=bash_complete
    test "$(rsscloud-broker)" = plain,check-config'
start

echo "Removing"
apt remove rsscloud-broker
check test ! -e "$system/opt/rsscloud-broker"
check test -e "$config"
check test -e "$system/var/lib/rsscloud-broker/broker.sqlite"
apt purge rsscloud-broker
check test ! -e "$system/etc/rsscloud-broker"
check test ! -e "$system/var/lib/rsscloud-broker"
check test -z "$(inside getent passwd rsscloud-broker)"
left=$(inside find /etc /usr /var/lib/systemd -name '*rsscloud*')
check test -z "$left"
echo "The package was installed, started, upgraded, started, removed and purged."
