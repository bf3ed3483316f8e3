#!/usr/bin/env bash
# Makes the source archive of a commit, graphsink-VERSION.tar.xz: all tracked files and no others, in git's order, with the
# time of the commit, and with user and group 0. The same commit gives the same bytes wherever git and xz are the same.
set -euo pipefail

usage() {
  cat <<TEXT
usage: packaging/source_archive.sh [--output FOLDER] [COMMIT]
  --output FOLDER  where the archive is written; build/ if it is not given
  COMMIT           what is packed; HEAD if it is not given. Changes that are not committed are left out, and said.
Prints the file and its SHA-256. Exit: 0 written, 1 failed, 2 wrong usage, or this is no clone of git.
TEXT
}

fail() {
  echo "source_archive: $1" >&2
  exit "$2"
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=$root/build
commit=HEAD
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit ;;
    --output)
      [[ $# -ge 2 ]] || fail '--output needs a folder' 2
      output=$2
      shift 2
      ;;
    -*) fail "there is no option $1; see --help" 2 ;;
    *)
      commit=$1
      shift
      ;;
  esac
done

top=$(git -C "$root" rev-parse --show-toplevel 2>/dev/null) || top=
[[ $top == "$(cd "$root" && pwd -P)" ]] || fail "$root is no clone of git, so it cannot be said which files are tracked" 2
hash=$(git -C "$root" rev-parse --verify --quiet "$commit^{commit}") || fail "there is no commit $commit" 2
if [[ $commit == HEAD && -n $(git -C "$root" status --porcelain) ]]; then
  echo "source_archive: left out, because it is not committed:" >&2
  git -C "$root" status --short >&2
fi

version=$(git -C "$root" show "$hash:include/graphsink/version.h" |
  awk '/^#define GRAPHSINK_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }')
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "include/graphsink/version.h of $commit has no version" 1
mkdir -p "$output"
archive=$(cd "$output" && pwd)/graphsink-$version.tar.xz
# Neither the settings of whoever calls this nor those of the clone change a byte.
git -C "$root" -c core.autocrlf=false -c core.eol=lf -c core.attributesFile=/dev/null -c tar.umask=0022 archive \
  --format=tar "--prefix=graphsink-$version/" "$hash" |
  env -u XZ_DEFAULTS -u XZ_OPT xz -6 --threads=1 >"$archive.part"
mv "$archive.part" "$archive"
(cd "$output" && sha256sum "$(basename "$archive")")
