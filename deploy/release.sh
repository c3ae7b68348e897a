#!/bin/sh
# Releases a tagged commit. .github/workflows/release.yml runs each step on the right machine.
#
#   deploy/release.sh programs    # on each platform: builds the programs, checks that they are reproducible, and packs an archive
#   deploy/release.sh images      # on each platform: pushes images with the programs of its archive
#   deploy/release.sh publish     # once, with all archives: lists of crates, chart, checksums, signatures, and the release itself
#   deploy/release.sh --dry-run   # every step for this platform; prints what would be pushed, signed and uploaded
#
# REPOSITORY is the owner and name on GitHub, REGISTRY the prefix of images, ending with a slash. Files go to target/dist.
# Images and the release wait for a reviewer of the environment "release" on GitHub.
# For a dry run, DIST can name another empty folder, and PROGRAMS a folder of programs that are already built.
# Needs python3 and git; cargo and redis-server for programs; docker and gh for images; docker, cargo, helm, cosign and gh to publish.
set -eu
cd "$(dirname "$0")/.."

step=${1:?a step: programs, images, publish or --dry-run}
repository=${REPOSITORY:-$(sed -n 's/^repository=//p' deploy/install.sh)}
registry=${REGISTRY:-localhost/faregate/}
dist=$PWD/target/dist
programs='faregate inference-gateway key-service local-model'
images="$programs secrets"
architectures='amd64 arm64'
architecture=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
archive=faregate-linux-$architecture.tar.gz
version=$(tests/tools/version.py)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
PATH=$PATH:$PWD/tests/.tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

# Runs a command that publishes something; in a dry run, prints it instead.
send() {
  if [ "$step" = --dry-run ]; then echo "$*"; else "$@"; fi
}

check_tag() {
  [ -z "$(git status --porcelain)" ] || fail 'the tree has changes'
  [ -z "${PROGRAMS:-}${DIST:-}" ] || fail 'PROGRAMS and DIST are for a dry run'
  tag=$(git describe --exact-match --tags HEAD) || fail 'the commit has no tag'
  [ "$tag" = "v$version" ] || fail "the tag is $tag, the version $version"
  for file in README.md deploy/install.sh; do
    grep -qF "$repository" $file || fail "$file does not name $repository: see docs/releasing.md"
  done
  for file in docker-compose.yml deploy/compose/one-process.yml deploy/helm/faregate/values.yaml; do
    grep -qF "$registry" $file || fail "$file does not name $registry: see docs/releasing.md"
  done
}

# GitHub would create a missing environment without reviewers. So before publishing, check that it exists and has some.
check_approval() {
  rules=$(gh api "repos/$repository/environments/release" --jq '.protection_rules[].type') ||
    fail "$repository has no environment named release: see docs/releasing.md"
  case $rules in
    *required_reviewers*) ;;
    *) fail "the environment named release of $repository has no required reviewers: see docs/releasing.md" ;;
  esac
}

build_programs() {
  built=${PROGRAMS:-}
  if [ -z "$built" ]; then
    tests/tools/pgo.sh profile
    PROFILE=target/pgo/faregate.profdata tests/tools/reproducible.sh
    built=target/reproducible/a/programs
    cp target/pgo/faregate.profdata "$dist/faregate-linux-$architecture.profdata"
  fi
  git archive --prefix="faregate-$version/" HEAD LICENSE README.md CHANGELOG.md SECURITY.md config deploy docker-compose.yml docs |
    tar -x -C "$work"
  tests/tools/notice.sh > "$work/faregate-$version/NOTICE"
  for program in $programs; do
    cp "$built/$program" "$work/faregate-$version/"
  done
  # Reproducible: the same files give the same archive.
  tar -c -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX --mtime="@$SOURCE_DATE_EPOCH" "faregate-$version" |
    gzip -n > "$dist/$archive"
}

push_images() {
  tar -x -z -C "$work" -f "$dist/$archive"
  for image in $images; do
    send docker buildx build --target "$image" --build-arg PROGRAMS=given --build-context "given=$work/faregate-$version" \
      --build-arg "FAREGATE_VERSION=$version" --build-arg "FAREGATE_COMMIT=$(git rev-parse --short=12 HEAD)" \
      --build-arg "FAREGATE_SOURCE=https://github.com/$repository" --provenance=false --push \
      --tag "$registry$image:$version-$architecture" .
  done
}

# Digest of a pushed multi-architecture image.
digest() {
  if [ "$step" = --dry-run ]; then echo sha256:0; else docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}'; fi
}

publish_images() {
  for image in $images; do
    name=$registry$image
    # shellcheck disable=SC2046,SC2086 # several arguments
    send docker buildx imagetools create --tag "$name:$version" $(printf " $name:$version-%s" $architectures)
    name=$name@$(digest "$name:$version")
    send cosign sign --yes --recursive "$name"
    if [ "$image" != secrets ]; then
      send cosign attest --yes --type cyclonedx --predicate "$dist/$image.cdx.json" "$name"
    fi
    echo "$name"
  done
}

publish_chart() {
  send helm push "$dist/faregate-$version.tgz" "oci://${registry}charts" > "$work/chart" 2>&1 || fail "$(cat "$work/chart")"
  cat "$work/chart"
  chart=$(sed -n 's/^Digest: //p' "$work/chart")
  send cosign sign --yes "${registry}charts/faregate@${chart:-sha256:0}"
}

publish() {
  [ "$step" != --dry-run ] || architectures=$architecture
  for each in $architectures; do
    [ -f "$dist/faregate-linux-$each.tar.gz" ] || fail "$dist has no archive for $each"
  done
  tests/tools/sbom.py "$dist"
  helm package deploy/helm/faregate --destination "$dist"
  cp deploy/install.sh "$dist/"
  (cd "$dist" && sha256sum -- * > "$work/SHA256SUMS")
  mv "$work/SHA256SUMS" "$dist/"
  send cosign sign-blob --yes --bundle "$dist/SHA256SUMS.sigstore.json" "$dist/SHA256SUMS"
  publish_images
  publish_chart
  # Release notes from the changelog.
  sed -n "/^## $version/,/^## /{/^## /!p;}" CHANGELOG.md > "$work/notes"
  send gh release create "v$version" --repo "$repository" --verify-tag --title "Faregate $version" --notes-file "$work/notes" "$dist"/*
}

case $step in
  programs)
    check_tag
    rm -rf "$dist"
    mkdir -p "$dist"
    build_programs
    ;;
  images)
    check_tag
    check_approval
    push_images
    ;;
  publish)
    check_tag
    check_approval
    publish
    ;;
  --dry-run)
    [ -n "${DIST:-}" ] || rm -rf "$dist"
    dist=${DIST:-$dist}
    mkdir -p "$dist"
    [ -z "$(ls -A "$dist")" ] || fail "$dist is not empty"
    build_programs
    push_images
    publish
    ;;
  *) fail "no step is named $step" ;;
esac
