#!/usr/bin/env bash
# Cron's check of a host: silent while its transfers are as fast as those of its baseline, and an error otherwise, which
# cron mails. The first run keeps the baseline. In /etc/cron.d/pyxfer:
#   PATH=/opt/pyxfer/bin:/usr/bin:/bin
#   MAILTO=admin@example.org
#   17 3 * * *  pyxfer  /opt/pyxfer/check_host.sh
set -uo pipefail
export PYXFER_STORE=${PYXFER_STORE:-/var/lib/pyxfer/store.db}
NAME=nightly

if ! pyxfer baseline show "$NAME" >/dev/null 2>&1; then
  exec pyxfer baseline save --name "$NAME"
fi
page=$(pyxfer baseline check --name "$NAME" 2>&1)
code=$?
if ((code != 0)); then # 1: certainly slower; the others are explained in the README of pyxfer
  printf '%s: pyxfer baseline check ended with %d\n\n%s\n' "$(hostname)" "$code" "$page"
fi
exit "$code"
