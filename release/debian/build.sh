#!/bin/sh
# Builds a Debian package into dist from the wheel there: make deb.  It has the broker with all its
# libraries in a virtual environment of Debian's Python, in /opt/rsscloud-broker, as the systemd
# units in tap expect; the versions are those of release/requirements.txt.
#
#     sh release/debian/build.sh PIP SPHINX-BUILD
set -eu
pip=$1 sphinx=$2
here=$(dirname "$0")
top=$(realpath "$here/../..")
python=/usr/bin/python3

set -- "$top"/dist/rsscloud_broker-*-py3-none-any.whl
test -e "$1" || { echo "There is no wheel in dist: run make dist first." >&2; exit 1; }
version=$(basename "$1" -py3-none-any.whl)
version=${version#rsscloud_broker-}
# In Debian's order, 1.0~rc1 comes before 1.0, as 1.0rc1 does in Python's.
debian=$(echo "$version" | sed -E 's/\.?(dev|a|b|rc)([0-9])/~\1\2/')-1
minor=$($python -c 'import sys; print(sys.version_info.minor)')
SOURCE_DATE_EPOCH=$(git -C "$top" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
venv=$root/opt/rsscloud-broker
mkdir -p "$venv"
$python -m venv --without-pip "$venv"
"$pip" --python "$venv/bin/python" install --quiet --no-compile --no-deps --require-hashes \
    --only-binary :all: --requirement "$top/release/requirements.txt"
"$pip" --python "$venv/bin/python" install --quiet --no-compile --no-deps --no-index \
    --find-links "$top/dist" "rsscloud-broker==$version"
# The environment is moved from here to its place.
grep -rlI "$root" "$venv/bin" "$venv/pyvenv.cfg" | xargs sed -i "s|$root||g"
# dpkg changes the times of files, by which Python otherwise recognizes its bytecode.
"$venv/bin/python" -m compileall -q -s "$root" -p / --invalidation-mode unchecked-hash "$venv/lib"

units=$root/usr/lib/systemd/system
install -d "$root/usr/bin"
ln -s /opt/rsscloud-broker/bin/rsscloud-broker "$root/usr/bin/rsscloud-broker"
install -D -m 644 -t "$units" "$top/tap/rsscloud-broker.service" \
    "$top/tap/rsscloud-broker@.service" "$top/tap/rsscloud-broker.socket"
install -D -m 640 "$top/rsscloud_broker/example.toml" "$root/etc/rsscloud-broker/broker.toml"
"$sphinx" -b man --quiet --fail-on-warning "$top/docs" "$stage/man"
for page in "$stage"/man/*.[15]; do
    install -D -m 644 -t "$root/usr/share/man/man${page##*.}" "$page"
done
gzip -9n "$root"/usr/share/man/man*/*
# What completes its commands in shells: see docs/command.rst.
complete() {
    install -d "$root/usr/share/$2"
    env "_RSSCLOUD_BROKER_COMPLETE=$1_source" PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" \
        "$venv/bin/rsscloud-broker" >"$root/usr/share/$2/$3"
    chmod 644 "$root/usr/share/$2/$3"
}
complete bash bash-completion/completions rsscloud-broker
complete zsh zsh/vendor-completions _rsscloud-broker
complete fish fish/vendor_completions.d rsscloud-broker.fish
install -D -m 644 "$top/LICENSE" "$root/usr/share/doc/rsscloud-broker/copyright"

control=$root/DEBIAN
install -d "$control"
install -m 755 -t "$control" "$here/postinst" "$here/prerm" "$here/postrm"
echo /etc/rsscloud-broker/broker.toml >"$control/conffiles"
cat >"$control/control" <<END
Package: rsscloud-broker
Version: $debian
Architecture: $(dpkg --print-architecture)
Maintainer: The rsscloud-broker maintainers
Depends: python3 (>= 3.$minor~), python3 (<< 3.$((minor + 1))), ca-certificates, init-system-helpers (>= 1.54), passwd, procps
Installed-Size: $(du -ks "$root" | cut -f1)
Section: net
Priority: optional
Description: notification broker for the open web
 Sites tell the broker that they have changed.  It notifies every subscriber,
 and lists the change in a file that crawlers can read.  It speaks rssCloud,
 WebSub, the pings of weblogs.com and ResourceSync.
END
dpkg-deb --root-owner-group -Zxz --build "$root" "$top/dist" | grep -v '^$'
