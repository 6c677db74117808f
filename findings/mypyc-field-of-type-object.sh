#!/usr/bin/env bash
# A NamedTuple or a dataclass that mypyc compiles may not have a field of type `object`.
#
# Annotations of such a class are made when the module is imported, and mypyc 2.4.1 looks their types
# up by name. It finds `int`, but `object` nowhere, and the import ends in KeyError: 'object'. mypy
# accepts the field, and building says nothing.
# Met while compiling the output of a scheduler, whose connectors put into it what they like, and a
# comparison of two values that may be anything.
#
# Installs mypy 2.4.1 and setuptools 80.9.0 in a temporary folder; needs a C compiler and Python's
# headers. Ends with 0 while the behaviour is as said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mypy==2.4.1 setuptools==80.9.0
cd "$folder"
said=""
for case in "NamedTuple object" "dataclass object" "NamedTuple int" "dataclass int"; do
    read -r kind type <<< "$case"
    name="of_${kind}_${type}"
    if [ "$kind" = NamedTuple ]; then
        printf 'from typing import NamedTuple\n\n\nclass Output(NamedTuple):\n    metadata: %s\n' "$type"
    else
        printf 'from dataclasses import dataclass\n\n\n@dataclass\nclass Output:\n    metadata: %s\n' "$type"
    fi > "$name.py"
    venv/bin/python -m mypyc "$name.py" > build.log 2>&1 || { cat build.log >&2; exit 1; }
    came=$(venv/bin/python -c "import $name; print($name.Output(1).metadata)" 2>&1 | tail -1) || true
    said+="$case: $came"$'\n'
done
printf %s "$said"
expected="NamedTuple object: KeyError: 'object'
dataclass object: KeyError: 'object'
NamedTuple int: 1
dataclass int: 1
"
if [ "$said" != "$expected" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
echo "as said: mypy 2.4.1"
