#!/usr/bin/env bash
# Runs a command as on a fresh machine: setup/bare.sh COMMAND [ARGUMENT...]
#
# PATH holds the programs of Debian's essential packages and what the README asks for: Python with
# pip, git and make. The home folder is empty, and with it every cache. Databases that programs find
# without PATH are covered by an empty folder where that is permitted (as root on Linux).
set -euo pipefail

python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
mkdir "$bare/bin" "$bare/home"

essential=$(dpkg-query --show --showformat '${Essential} ${Package}\n' | sed -n 's/^yes //p')
# shellcheck disable=SC2086 # one word a package
dpkg --listfiles $essential | grep -E '^(/usr)?/s?bin/[^/]+$' | while read -r program; do
    ln -sf "$program" "$bare/bin/"
done
# Not a link: an environment made with it would link to it, and outlive it.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$bare/bin/python3"
chmod +x "$bare/bin/python3"
ln -sf "$(command -v git)" "$(command -v make)" "$bare/bin/"

settings=(HOME="$bare/home" PATH="$bare/bin")
for kept in LANG LC_ALL CI TMPDIR ${!PIP_@} ${!OPENBLAS_@} ${!SSL_@}; do
    [ -z "${!kept-}" ] || settings+=("$kept=${!kept}")
done

# What is hidden has to be seen to be hidden: a list that lets one through is no fresh machine.
for hidden in cc chromium jq node postgres prometheus promtool redis-server uv; do
    if env -i "${settings[@]}" bash -c "command -v $hidden" >/dev/null; then
        echo "error: $hidden is on the PATH of a fresh machine; expected only what README.md asks for" >&2
        exit 2
    fi
done
echo "a fresh machine: $(ls "$bare/bin" | wc -l) programs on PATH, an empty home" >&2

databases=/usr/lib/postgresql
if [ -d "$databases" ] && mount=$(command -v mount) && unshare --mount true 2>/dev/null; then
    set -- "$(command -v unshare)" --mount sh -c '"$0" -t tmpfs none "$1" && shift && exec "$@"' "$mount" "$databases" "$@"
fi
env -i "${settings[@]}" "$@"
