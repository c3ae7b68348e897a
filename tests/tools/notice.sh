#!/bin/sh
# Prints the NOTICE of archives and images. It lists the crates that the programs link, and contains the texts of the crates' licences and
# notices. A text that several crates share is printed once.
set -eu
cd "$(dirname "$0")/../.."

LC_ALL=C
export LC_ALL
host=$(rustc -vV | sed -n 's/^host: //p')
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/texts"

for program in faregate inference-gateway key-service local-model; do
  cargo tree --locked --package "$program" --target "$host" --edges normal,no-proc-macro --prefix none --format '{p} {l}'
done | grep -v ' (/' | sed 's/ (\*)$//' | sort -u > "$work/crates"

while read -r name version _; do
  find "$sources"/*/"$name-${version#v}" -type f \
    \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'copyright*' -o -iname 'notice*' -o -iname 'unlicense*' \) ! -name '*.rs' | sort |
    while read -r file; do
      text=$work/texts/$(cksum < "$file" | tr ' ' -)
      cp "$file" "$text"
      echo "$name ${version#v}" >> "$text.crates"
    done
done < "$work/crates"

cat <<TEXT
Faregate is licensed under Apache-2.0 (LICENSE). Its programs link the crates below. After the list come the texts of their licences,
each below the crates that it belongs to.

$(cat "$work/crates")
TEXT
for crates in "$work"/texts/*.crates; do
  printf '\n%s\n' '--------------------------------------------------------------------------------'
  sort -u "$crates"
  echo
  cat "${crates%.crates}"
done
