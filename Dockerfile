# One image per program, chosen with --target: key-service, inference-gateway, local-model, faregate; and secrets, which makes
# the secrets for docker-compose.yml. All programs are built once. A release uses prebuilt programs from a folder
# that also has LICENSE and NOTICE; it then needs no Rust image:
# docker buildx build --build-arg PROGRAMS=given --build-context given=FOLDER
ARG PROGRAMS=built

# Images are pinned by the digest of their index, in which each platform finds its own image: a tag can be moved, a digest cannot.
# Change both together: docker buildx imagetools inspect IMAGE:TAG
FROM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS source
# Programs list the crates that they contain, for image scanners.
RUN cargo install --locked cargo-auditable@0.7.7
WORKDIR /src
COPY . .

# A profile of the programs at work, for profile-guided optimisation: a quarter fewer instructions per request. To rebuild a
# release byte for byte, replace it by that release's profile: docker buildx build --build-context profile=FOLDER
FROM source AS trained
RUN apt-get update && apt-get install -y --no-install-recommends redis-server
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    tests/tools/pgo.sh profile && install -D --target-directory=/out target/pgo/faregate.profdata

FROM scratch AS profile
COPY --from=trained /out/faregate.profdata /

FROM source AS build
COPY --from=profile /faregate.profdata /
# The programs contain no paths or times of the build: `make reproducible` builds the same bytes.
ARG SOURCE_DATE_EPOCH=0
# The commit that `--version` names: docker build --build-arg FAREGATE_COMMIT=$(git rev-parse --short=12 HEAD)
ARG FAREGATE_COMMIT=
ENV RUSTFLAGS="--remap-path-prefix=/src=/faregate --remap-path-prefix=/usr/local/cargo=/cargo -Cprofile-use=/faregate.profdata" \
    CFLAGS="-ffile-prefix-map=/src=/faregate -ffile-prefix-map=/usr/local/cargo=/cargo"
# Downloads and compiled crates stay in the builder's caches for the next build. Command and target are the same as for the
# profile, since the names of functions depend on them.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    host=$(rustc -vV | sed -n 's/^host: //p') \
 && cargo auditable build --release --locked --target "$host" \
        --package key-service --package inference-gateway --package local-model --package faregate \
 && install -D --target-directory=/out $(printf " target/$host/release/%s" key-service inference-gateway local-model faregate) \
 && tests/tools/notice.sh > /out/NOTICE && cp LICENSE /out/

FROM scratch AS built
COPY --from=build /out/ /

FROM ${PROGRAMS} AS programs

# The base of all images: the C library that the programs are linked with, and one user without a name. It has the same number
# as the user of the Redis image, so that both can read files that only their owner may read. It owns /data: the key-service
# and each gateway need a volume there, since the data in it must outlive their containers.
FROM debian:12.12-slim@sha256:d5d3f9c23164ea16f31852f95bd5959aad1c5e854332fe00f7b3a20fcc9f635c AS base
RUN install --directory --mode=700 --owner=999 --group=999 \
        /data /secrets/key-service /secrets/services /secrets/redis
USER 999:999
ENV FAREGATE_DATA_DIR=/data
# For registries and scanners. A release states its version, commit and repository.
ARG FAREGATE_VERSION=
ARG FAREGATE_COMMIT=
ARG FAREGATE_SOURCE=
LABEL org.opencontainers.image.title="Faregate" \
      org.opencontainers.image.description="Prepaid API keys for language models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${FAREGATE_VERSION}" \
      org.opencontainers.image.revision="${FAREGATE_COMMIT}" \
      org.opencontainers.image.source="${FAREGATE_SOURCE}"

FROM base AS licensed
COPY --from=programs /LICENSE /NOTICE /usr/share/doc/faregate/

FROM licensed AS key-service
COPY --from=programs /key-service /usr/local/bin/
ENV FAREGATE_KEY_HTTP_LISTEN=0.0.0.0:8081 FAREGATE_KEY_GRPC_LISTEN=0.0.0.0:50051
EXPOSE 8081 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=500ms CMD ["key-service", "--health"]
ENTRYPOINT ["key-service"]

FROM licensed AS inference-gateway
COPY --from=programs /inference-gateway /usr/local/bin/
ENV FAREGATE_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=500ms CMD ["inference-gateway", "--health"]
ENTRYPOINT ["inference-gateway"]

FROM licensed AS local-model
COPY --from=programs /local-model /usr/local/bin/
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=500ms CMD ["local-model", "--health"]
ENTRYPOINT ["local-model"]

# Both services and the demo model in one process.
FROM licensed AS faregate
COPY --from=programs /faregate /usr/local/bin/
ENV FAREGATE_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=500ms CMD ["faregate", "--health"]
ENTRYPOINT ["faregate"]

FROM base AS secrets
COPY --chmod=755 <<'SCRIPT' /usr/local/bin/make-secrets
#!/bin/sh
# Makes the secrets of an installation, each readable only by its owner. Existing secrets stay unchanged.
set -eu
umask 077

# 256 random bits as hexadecimal digits. The file is written completely or not at all.
make() {
    [ -e "$1" ] && return
    od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' > "$1.new"
    mv "$1.new" "$1"
}

make /secrets/key-service/pepper
make /secrets/key-service/redis-password
make /secrets/redis/operator-password
make /secrets/services/internal-token

# The key-service may do what it needs with its own names. The health check may only ping. The operator may back up, rewrite
# the file and change settings: docs/backup.md has the commands. Nobody can sign in as `default`, but it keeps every
# permission: after a restart, Redis reads its file as that user, and would drop commands that the user may not run.
password=$(cat /secrets/key-service/redis-password)
operator=$(cat /secrets/redis/operator-password)
printf 'redis://key-service:%s@redis:6379\n' "$password" > /secrets/key-service/store
cat > /secrets/redis/users.acl <<USERS
user default off resetpass ~* &* +@all
user health on nopass -@all +ping
user key-service on >$password ~fg:* +@read +@write +@scripting +@connection -@dangerous +info +time +config|get +bgrewriteaof +client|list
user operator on >$operator -@all +@connection +info +dbsize +lastsave +bgsave +bgrewriteaof +sync +psync +replconf +config|get +config|set
USERS
SCRIPT
ENTRYPOINT ["make-secrets"]
