#!/usr/bin/env bash
# Makes the site of docs/, with the reference of the public headers: see --help.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"
cd "$GS_ROOT"

usage() {
  cat <<'TEXT'
usage: docs/build.sh [FOLDER]   makes the site in FOLDER, build/site by default: open FOLDER/index.html (without search,
                                which needs a server)
       docs/build.sh --serve    shows it at http://127.0.0.1:8000, and follows changes of the pages

A link or an anchor that leads nowhere ends it with 1. It needs Python 3.11 with venv, and installs docs/requirements.txt
into build/docs-env, once. Without doxygen the site has no reference.
TEXT
}

environment=$GS_ROOT/build/docs-env

# The reference of the public headers, in build/docs/html.
make_reference() {
  local version
  version=$(awk '/^#define GRAPHSINK_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' include/graphsink/version.h)
  rm -rf build/docs/html # pages of headers that are no more
  mkdir -p build/docs
  sed -e "s|@PROJECT_SOURCE_DIR@|$GS_ROOT|g" -e "s|@CMAKE_BINARY_DIR@|$GS_ROOT/build|g" -e "s|@PROJECT_VERSION@|$version|" \
    -e "s|@PROJECT_DESCRIPTION@|Computation graphs as CUDA Graphs launched in one call|" cmake/Doxyfile.in >build/docs/Doxyfile
  gs_logged docs.reference doxygen build/docs/Doxyfile
}

has_packages() {
  local line
  while read -r line; do
    "$environment/bin/python" -c 'import importlib.metadata, sys
name, version = sys.argv[1].split("==")
sys.exit(importlib.metadata.version(name) != version)' "$line" 2>/dev/null || return 1
  done < <(grep -v '^#' docs/requirements.txt)
}

main() {
  if ! has_packages && ! gs_python_environment "$environment" -r docs/requirements.txt; then
    gs_warn 'the packages of docs/requirements.txt could not be installed into build/docs-env: see build/logs/python.packages.log'
    exit 2
  fi
  if command -v doxygen >/dev/null; then
    make_reference
    export GRAPHSINK_REFERENCE=$GS_ROOT/build/docs/html
  else
    gs_warn 'the site has no reference: doxygen is missing (package doxygen)'
  fi
  if [[ ${1:-} == --serve ]]; then
    exec "$environment/bin/mkdocs" serve
  fi
  local folder
  folder=$(realpath -m "${1:-build/site}")
  if [[ -n $(ls -A "$folder" 2>/dev/null) && ! -e $folder/sitemap.xml ]]; then
    gs_warn "$folder holds other files, which mkdocs would remove; name an empty folder, or one of a former site"
    exit 1
  fi
  NO_MKDOCS_2_WARNING=1 gs_logged docs.site "$environment/bin/mkdocs" build --strict --clean --site-dir "$folder" || exit 1
  gs_say "the site: $folder/index.html"
}

case ${1:-} in
  --help | -h) usage ;;
  --serve) main --serve ;;
  -*)
    usage >&2
    exit 2
    ;;
  *) main "$@" ;;
esac
