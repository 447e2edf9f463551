#!/bin/sh
# Builds the image of tap/Dockerfile with buildah, and tries its files: make image.
#
# BASE names the image that it begins with.  Without BASE, debootstrap makes the version of Debian
# that tap/Dockerfile names, so that no place is needed from which images come.  This takes five
# minutes and needs root, buildah, debootstrap and the network.  The broker is started by the image's
# ENTRYPOINT, as the image's user and with its files read-only, in a chroot: no kernel's support for
# containers is needed.
set -eu
command -v buildah >/dev/null || { echo "Run: apt-get install buildah" >&2; exit 1; }
here=$(realpath "$(dirname "$0")")
top=$(realpath "$here/..")
work=$(mktemp -d)
limit=200000000 # bytes
# Of this build alone, so that it leaves nothing.
buildah() { command buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
cleanup() {
    for place in dev proc data tmp ""; do umount -l "$work/root/$place" 2>/dev/null || true; done
    buildah rm --all >/dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

base=${BASE:-}
if [ -z "$base" ]; then
    echo "Making a new Debian: about a minute."
    suite=$(sed -n 's/^ARG BASE=debian:\([a-z]*\).*/\1/p' "$top/tap/Dockerfile")
    SUITE=$suite sh "$here/debian/new-system.sh" "$work/system" --include=ca-certificates
    if [ -d /usr/local/share/ca-certificates ]; then
        cp -r /usr/local/share/ca-certificates "$work/system/usr/local/share/"
    fi
    chroot "$work/system" update-ca-certificates >/dev/null 2>&1
    test ! -e /etc/pip.conf || cp /etc/pip.conf "$work/system/etc/"
    base=localhost/debian
    container=$(buildah from scratch)
    buildah copy --quiet "$container" "$work/system" / >/dev/null
    buildah commit --quiet "$container" "$base" >/dev/null
    rm -rf --one-file-system "$work/system"
fi

echo "Building the image: about three minutes."
buildah bud --quiet --format docker --isolation chroot --build-arg "BASE=$base" \
    --file "$top/tap/Dockerfile" --tag rsscloud-broker "$top" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
container=$(buildah from rsscloud-broker)
files=$(buildah mount "$container")
size=$(du --summarize --bytes --one-file-system "$files" | cut -f 1)
echo "The image has $((size / 1000000)) MB."
test "$size" -lt "$limit" || { echo "It may have at most $limit bytes." >&2; exit 1; }
buildah inspect --type image rsscloud-broker >"$work/image.json"

mkdir "$work/root" "$work/data" "$work/tmp"
chmod 777 "$work/data" "$work/tmp"
mount --bind "$files" "$work/root"
mount -o remount,ro,bind "$work/root"
mount --bind "$work/data" "$work/root/data"
mount --bind "$work/tmp" "$work/root/tmp"
mount --bind /dev "$work/root/dev"
mount -t proc proc "$work/root/proc"
python3 "$here/first_use.py" "$work/state" python3 "$here/contained.py" "$work/image.json" \
    "$work/root" {port} >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
tail -n 1 "$work/log"
echo "The image's files run in a chroot, as its user, read-only; they were not run as a container."
