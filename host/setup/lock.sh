# Sourced by scripts that install into .deps, before they look at what is there: concurrent ones run one after the other. The lock ends
# with the script. It must not be sourced by a script that then runs another one of them.
mkdir -p .deps
exec 9>.deps/lock
flock --nonblock 9 || {
  echo "setup: waiting for another set-up in this checkout" >&2
  flock 9 || echo "warning: .deps cannot be locked; run no two set-ups concurrently" >&2
}
