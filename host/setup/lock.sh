# Sourced by scripts that install into .deps, before they look at what is there: a second run of a script waits for the first. No two
# scripts install into the same folder. The lock ends with the script.
mkdir -p .deps
exec 9>".deps/$(basename "$0" .sh).lock"
flock --nonblock 9 || {
  echo "setup: waiting for another run of $0" >&2
  flock 9 || echo "warning: .deps cannot be locked; do not run $0 twice concurrently" >&2
}
