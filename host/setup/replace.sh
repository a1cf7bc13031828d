# Sourced by scripts that install a library: the new one is made in a temporary folder, and an installed one stays until it is complete.

# begin_replacement FOLDER LIBRARY WANTED INSTALLED CHOICE: empties FOLDER, and removes it at the end of the script. WANTED and INSTALLED
# are a version and a build, such as `2.11.0 cpu`; INSTALLED may be empty. CHOICE is the variable that chooses the build. A failure is
# followed by what is still installed.
begin_replacement() {
  temporary=$1 library=$2 wanted=$3 installed=$4 choice=$5
  rm -rf "$temporary"
  mkdir -p "$temporary"
  trap end_replacement EXIT
}

end_replacement() {
  local status=$? message
  rm -rf "$temporary"
  [ "$status" = 0 ] && return
  message="error: $library $wanted is not installed, because of the error above"
  [ -z "$installed" ] || message="$message; $library $installed is still installed"
  [ "${installed% *}" != "${wanted% *}" ] || message="$message, and $choice=${installed#* } make setup uses it"
  echo "$message" >&2
}

# put_in_place VERSIONED OTHER...: moves these folders of the temporary one into .deps. VERSIONED, which has the version, leaves first and
# arrives last: with it the library is complete.
put_in_place() {
  local versioned=$1 name
  for name in "$@"; do
    [ -e "$temporary/$name" ] || {
      echo "error: the downloaded packages have no $name" >&2
      exit 1
    }
  done
  mkdir "$temporary/old"
  for name in "$@"; do
    [ ! -e ".deps/$name" ] || mv ".deps/$name" "$temporary/old/$name"
  done
  shift
  for name in "$@" "$versioned"; do
    mv "$temporary/$name" ".deps/$name"
  done
}
