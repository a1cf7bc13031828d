# Sourced: `. host/setup/apt.sh PACKAGE...` installs Debian or Ubuntu packages, or says what to install by hand.
command -v apt-get >/dev/null 2>&1 || {
  echo "error: missing on this machine: $*. Install the equivalents with your package manager and run again" >&2
  exit 1
}
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null || {
  echo "error: apt-get could not install: $*" >&2
  exit 1
}
