#!/bin/sh
# Makes a new, minimal Debian in a directory, for try.sh and image.sh: of this machine's version, or
# of the one that SUITE names.
#
#     sh release/debian/new-system.sh DIRECTORY [OPTIONS OF debootstrap]
set -eu
system=$1
shift
command -v debootstrap >/dev/null || { echo "Run: apt-get install debootstrap" >&2; exit 1; }
# Packages come from where this machine gets them.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -nE 's/^(deb( \[.*\])?|URIs:) +([^ ]+).*/\3/p' | head -n 1)
# shellcheck disable=SC1091 # every Debian has it
here=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=${SUITE:-$here}
# shellcheck disable=SC2086 # without a mirror there is no argument
said=$(debootstrap --variant=minbase "$@" "$suite" "$system" ${mirror:-} 2>&1) || {
    echo "$said" >&2
    exit 1
}
cp -r /etc/apt/apt.conf.d "$system/etc/apt/"
# They name the version, too.
test "$suite" != "$here" || cp -r /etc/apt/sources.list* "$system/etc/apt/"
cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
rm -rf "$system"/var/cache/apt/archives/*.deb "$system"/var/lib/apt/lists/*
