#!/bin/sh
# Installs the programs of other people that the end-to-end tests run, where they are
# missing: Debian packages by apt-get, packages of Node.js by npm into a directory.
#
#     sh tests/e2e/install-programs.sh DIRECTORY
#
# It says what it installs, and why, before it does.  Where something cannot be
# installed it says why not and goes on; the tests that need it are then skipped, or
# fail if the environment has CI=true (see tests/e2e/programs.py).
set -u

directory=$1
PATH=$PATH:/usr/sbin:/sbin

skipped() {
    echo "They cannot be installed here: $1." >&2
    echo "The tests that need them will be SKIPPED." >&2
}

# --- Debian packages ---

has() { command -v "$1" >/dev/null; }
has_php_soap() { php -r 'exit(extension_loaded("soap") && extension_loaded("dom") ? 0 : 1);'; }
has_perl_soap() { perl -MSOAP::Lite -MXMLRPC::Lite -e 1; }
has_postgresql() { has postgres || ls /usr/lib/postgresql/*/bin/postgres; }
has_libatomic() { set -- /usr/lib/*/libatomic.so.1; test -e "$1"; }
has_systemd() { has systemd-analyze && has systemd-socket-activate; }

missing=""
# needs PROBE WHY PACKAGE...: remember the packages if the probe fails.
needs() {
    probe=$1 why=$2
    shift 2
    $probe >/dev/null 2>&1 && return
    test -n "$missing" || echo "make test needs these packages of Debian, which are missing:"
    echo "  $*: $why"
    missing="$missing $*"
}

needs "has nginx" "a web server, with feeds and in front of the broker" nginx-light
needs has_php_soap "PHP's SoapClient, which calls the broker" php-cli php-soap php-xml
needs has_perl_soap "SOAP::Lite and XMLRPC::Lite of Perl, which call the broker" \
    libsoap-lite-perl libxmlrpc-lite-perl
needs has_postgresql "a database for several brokers; the tests run one of their own" postgresql
needs "has pgbouncer" "a pooler of connections, between brokers and their database" pgbouncer
needs "has caddy" "a web server in front of the broker" caddy
needs "has apache2" "a web server in front of the broker" apache2-bin
needs "has chromium-headless-shell" "Chromium without a window, which opens the pages" \
    chromium-headless-shell
needs "has firefox-esr" "Firefox, which opens some of the pages" firefox-esr
needs has_libatomic "a library that Playwright needs, which drives the browser" libatomic1
needs "has curl" "a client of HTTP with cookies, which signs in" curl
needs "has promtool" "Prometheus's promtool, which checks metrics and rules for alerts" prometheus
needs "test -x /bin/kill" "kill as a program, which the systemd units name" procps
needs has_systemd "systemd's own tools, which check and start the units in tap/" systemd

install_packages() {
    has apt-get || { skipped "there is no apt-get"; return; }
    test "$(id -u)" = 0 || { skipped "only root may; as root run: apt-get install$missing"; return; }
    echo "Installing them takes a minute or two."

    # The tests start what they need: no service of a package is to be started.
    policy=/usr/sbin/policy-rc.d
    if ! test -e "$policy"; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi

    export DEBIAN_FRONTEND=noninteractive
    log=$directory/apt.log
    # shellcheck disable=SC2086 # these are several words
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } \
        >"$log" 2>&1 || skipped "apt-get failed; $log says why"
}

test -z "$missing" || install_packages

# --- packages of Node.js ---

install_node_packages() {
    echo "Installing soap and xmlrpc of Node.js, which call the broker, into $directory/node."
    mkdir -p "$directory/node"
    # The newest soap asks for a Node.js that Debian 12 does not have.
    npm install --prefix "$directory/node" --no-save --no-package-lock --no-audit --no-fund \
        --fetch-retries 1 'soap@~1.1' 'xmlrpc@^1.3' >"$directory/npm.log" 2>&1 ||
        skipped "npm failed; $directory/npm.log says why"
}

modules=$directory/node/node_modules
if has node && has npm && ! { test -d "$modules/soap" && test -d "$modules/xmlrpc"; }; then
    install_node_packages
fi
