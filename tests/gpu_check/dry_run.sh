#!/usr/bin/env bash
# usage: dry_run.sh FULL BUILD
echo 'gpu_check.sh --dry-run: not written yet' >&2
exit 2
