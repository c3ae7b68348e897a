#!/bin/sh
# Installs faregate from the latest release: fetches the archive for this machine, checks it, and puts the program into ~/.local/bin.
#
#   curl -fsSL https://github.com/faregate/faregate/releases/latest/download/install.sh | sh
#   curl -fsSL … | sh -s -- key-service inference-gateway     # these programs of the archive instead
#
# Set VERSION for another release, INTO for another folder, and FROM for another source, such as a mirror or file:///a/folder.
# The archive must match its checksum in SHA256SUMS, and the version in VERSION. If cosign is installed, SHA256SUMS must be signed
# by the repository's workflow, for the tag of that version.
set -eu
repository=faregate/faregate

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

has() {
  command -v "$1" > /dev/null
}

# Fetches a file of the release into the working folder. Never follows a redirect away from TLS.
fetch() {
  if has curl; then
    curl --fail --silent --show-error --location --proto-redir '=https' --output "$work/$1" "$from/$1"
  elif has wget; then
    wget --max-redirect=0 --version > /dev/null 2>&1 || fail 'this wget would follow a redirection away from TLS; install curl or GNU wget'
    fetch_with_wget "$from/$1" "$work/$1"
  else
    fail 'curl or wget is needed'
  fi || fail "$from/$1 cannot be fetched"
}

# wget would follow a redirect to any scheme, so this follows each one itself, to https only.
fetch_with_wget() {
  url=$1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    if wget --max-redirect=0 --server-response --output-document="$2" "$url" 2> "$work/heads"; then
      return 0
    fi
    url=$(sed -n 's/^ *[Ll]ocation: *\([^ ]*\).*/\1/p' "$work/heads" | tr -d '\r' | tail -n 1)
    case $url in
      https://*) ;;
      *) return 1 ;;
    esac
  done
  return 1
}

sum() {
  if has sha256sum; then sha256sum "$1"; else shasum --algorithm 256 "$1"; fi | cut -d ' ' -f 1
}

check_signature() {
  if ! has cosign; then
    echo 'The sum of the archive is checked. The signature of the sums is not: cosign is not installed.'
    return
  fi
  fetch SHA256SUMS.sigstore.json
  tag=$(echo "${version:+$version\$}" | sed 's/[.]/\\./g')
  cosign verify-blob --bundle "$work/SHA256SUMS.sigstore.json" \
    --certificate-identity-regexp "^https://github\.com/$repository/\.github/workflows/release\.yml@refs/tags/v$tag" \
    --certificate-oidc-issuer https://token.actions.githubusercontent.com "$work/SHA256SUMS" ||
    fail 'SHA256SUMS is not signed by a release of the repository; nothing was installed'
}

# Replaces a program atomically, even while the old one runs.
install_program() {
  [ -f "$unpacked/$1" ] || fail "the archive has no program $1"
  "$unpacked/$1" --version > /dev/null || fail "$1 does not start here: it needs glibc 2.34 or newer; nothing was installed"
  cp "$unpacked/$1" "$into/.$1.new"
  mv "$into/.$1.new" "$into/$1"
  echo "Installed $into/$1, $("$into/$1" --version)."
}

main() {
  case "$(uname -s) $(uname -m)" in
    'Linux x86_64') platform=linux-amd64 ;;
    'Linux aarch64') platform=linux-arm64 ;;
    *) fail "there is no archive for $(uname -s) on $(uname -m); the README says how to run an image or to build from source" ;;
  esac
  releases=https://github.com/$repository/releases
  version=${VERSION:-}
  version=${version#v}
  from=${FROM:-$releases/${version:+download/v$version}}
  [ "$from" != "$releases/" ] || from=$releases/latest/download
  into=${INTO:-$HOME/.local/bin}
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT

  archive=faregate-$platform.tar.gz
  fetch SHA256SUMS
  check_signature
  expected=$(awk -v name="$archive" '$2 == name { print $1 }' "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "SHA256SUMS has no checksum for $archive; nothing was installed"
  fetch "$archive"
  [ "$(sum "$work/$archive")" = "$expected" ] || fail "$archive does not match its checksum in SHA256SUMS; nothing was installed"

  tar -x -z -C "$work" -f "$work/$archive"
  unpacked=$(echo "$work"/faregate-*/)
  [ -z "$version" ] || [ -d "$work/faregate-$version" ] ||
    fail "$archive has $(basename "$unpacked"), not version $version; nothing was installed"
  mkdir -p "$into"
  [ $# -gt 0 ] || set -- faregate
  for program in "$@"; do
    install_program "$program"
  done
  case ":$PATH:" in
    *":$into:"*) ;;
    *) echo "$into is not in PATH: add it, or name the program with its folder." ;;
  esac
}

# Called last, so that nothing runs before the whole script has arrived.
main "$@"
