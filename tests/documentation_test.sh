#!/usr/bin/env bash
# doxygen makes pages of the public headers without a warning, so that every public name has a comment, and these are in
# the pages. It refuses a header with a name that has none. $1: the build.
set -euo pipefail

doxygen "$1/Doxyfile"
check() {
  sed 's/<[^>]*>//g' "$1" | tr '\n' ' ' | grep -q "$2" || { echo "expected '$2' in $1" >&2; exit 1; }
}
pages=$1/docs/html
check "$pages/classgraphsink_1_1SinkCache.html" 'Drops all keys but those whose last launch has not ended'  # in front of it
check "$pages/structgraphsink_1_1SinkReport.html" 'keys that were dropped'                                  # behind it
check "$pages/classgraphsink_1_1OpBodies.html" 'All bodies.*All bodies.*All bodies'                        # of a group of two
check "$pages/namespacegraphsink.html" 'Describes the choice in one sentence'                              # of a function
check "$pages/capture_8h.html" 'SinkCache: sinks code that knows nothing of graphsink'                     # of the file

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed -e "s|^INPUT = .*|INPUT = $scratch/header.h|" -e "s|^OUTPUT_DIRECTORY = .*|OUTPUT_DIRECTORY = $scratch|" \
  "$1/Doxyfile" >"$scratch/Doxyfile"
refuses() {
  printf '// A header.\n#pragma once\n// A namespace.\nnamespace GRAPHSINK_PUBLIC graphsink {\n%s\n}\n' "$1" >"$scratch/header.h"
  if doxygen "$scratch/Doxyfile" >"$scratch/log" 2>&1 || ! grep -q 'bare.* is not documented' "$scratch/log"; then
    echo "expected doxygen to refuse '$1', seen '$(cat "$scratch/log")'" >&2
    exit 1
  fi
}
refuses $'struct bare {\n  int a = 0;  // a number\n};'
refuses $'// A struct.\nstruct S {\n  int a = 0;  // a number\n  int bare = 0;\n};'
refuses $'// A class.\nclass C {\n public:\n  // A function.\n  void f();\n  void bare();\n};'
refuses $'void bare();'
refuses $'constexpr int bare = 1;'
refuses $'enum class bare { a, b };'
