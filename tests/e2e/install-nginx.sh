#!/bin/sh
# Installs the nginx that tests/e2e/test_feed_state.py reads feeds from, where it is
# missing.  Where that cannot be done it says so, and those tests are skipped.
set -u

if command -v nginx >/dev/null || test -x /usr/sbin/nginx; then
    exit 0
fi

cannot() {
    echo "nginx is missing and cannot be installed here: $1." >&2
    echo "The tests of feeds on a real server will be SKIPPED; install nginx to run them." >&2
    exit 0
}

command -v apt-get >/dev/null || cannot "there is no apt-get"
test "$(id -u)" = 0 || cannot "only root may"

# The tests run one of their own: the package's is not to be started.
policy=/usr/sbin/policy-rc.d
if ! test -e "$policy"; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || cannot "apt-get update failed"
apt-get install -y -qq --no-install-recommends nginx-light >/dev/null ||
    cannot "apt-get install failed"
