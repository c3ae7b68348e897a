#!/bin/sh
# Builds, pushes and signs the images of a tagged commit, and attaches the list of what each is made of.
#
#   deploy/release.sh registry.example.com/faregate/
#
# Needs docker with buildx, cosign, python3, cargo and git. DRY_RUN=1 prints what it would do.
set -eu
cd "$(dirname "$0")/.."
registry=${1:?the prefix of the images, ending with a slash}

run() {
  if [ -n "${DRY_RUN:-}" ]; then echo "$*"; else "$@"; fi
}

[ -z "$(git status --porcelain)" ] || { echo 'the tree has changes' >&2; exit 1; }
tag=$(git describe --exact-match --tags HEAD) || { echo 'the commit has no tag' >&2; exit 1; }
version=$(tests/tools/version.py)
[ "$tag" = "v$version" ] || { echo "the tag is $tag, the version $version" >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

run tests/tools/sbom.py target/sbom
# One profile for all programs, which is published: with it, the same bytes can be built again.
run docker buildx build --target profile --output type=local,dest=target/profile .
for program in key-service inference-gateway local-model faregate; do
  image=$registry$program
  run docker buildx build --target "$program" --build-context profile=target/profile --build-arg SOURCE_DATE_EPOCH --provenance=mode=max --push \
    --metadata-file "target/$program.json" --tag "$image:$version" .
  if [ -n "${DRY_RUN:-}" ]; then
    digest=sha256:0
  else
    digest=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["containerimage.digest"])' "target/$program.json")
  fi
  run cosign sign --yes "$image@$digest"
  run cosign attest --yes --type cyclonedx --predicate "target/sbom/$program.cdx.json" "$image@$digest"
  echo "$image@$digest"
done
