#!/bin/bash
# Sets up a separate Docker engine, with the images that the Compose files need, from Debian packages only: Docker 26.1, Compose 2.26
# and buildx 0.13 of Debian 13. It needs no image registry, but Debian, and root with all capabilities.
#
#   engine.sh start            # creates the engine and its images if missing (three minutes), and starts it
#   eval "$(engine.sh env)"    # makes `docker` in this shell use it
#   engine.sh stop             # stops the engine and its containers; images and volumes stay
#   engine.sh remove           # stops it and removes everything
#
# It writes only to $ENGINE (faregate-engine in the temporary folder). The engine also leaves the bridge docker0 and its iptables rules
# behind. These images stand in for those that Faregate's files name:
#
#   debian:…-slim   a minimal Debian 12, by debootstrap         haproxy      of Debian 13 (3.0), with wget
#   redis           redis-server of Debian 12 (7.0)             prometheus   of Debian 13 (2.53)
set -euo pipefail

dir=${ENGINE:-${TMPDIR:-/tmp}/faregate-engine}
root=$dir/root                          # a Debian 13: the engine's runc needs its C library
pid=$dir/run/docker.pid
socket=$dir/run/docker.sock
subnets=${ENGINE_SUBNETS:-10.210.0.0/16}
apt='apt-get -oAPT::Sandbox::User=root -qq'

fail() { echo "$*" >&2; exit 1; }

# The mirror that this machine's apt uses.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *\([^ ]*\/debian\)\/*$/\1/p' | head -n 1)
  [ -n "$found" ] || found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    grep '^deb ' | grep -o '[a-z]*://[^ ]*/debian/* ' | head -n 1 | tr -d ' ')
  [ -n "$found" ] || fail 'apt has no Debian mirror'
  echo "$found"
}

# debian SUITE FOLDER PACKAGE…: a minimal Debian with packages, without starting their services.
debian() {
  local suite=$1 folder=$2
  shift 2
  [ ! -e "$folder.made" ] || return 0
  rm -rf "$folder"
  debootstrap --variant=minbase "$suite" "$folder" "$(mirror)"
  if [ $# -gt 0 ]; then
    printf '#!/bin/sh\nexit 101\n' > "$folder/usr/sbin/policy-rc.d"
    chmod +x "$folder/usr/sbin/policy-rc.d"
    DEBIAN_FRONTEND=noninteractive chroot "$folder" sh -ec "$apt update; $apt install --no-install-recommends -y $*"
    rm "$folder/usr/sbin/policy-rc.d"
  fi
  chroot "$folder" apt-get clean
  touch "$folder.made"
}

# The engine's packages are unpacked but not configured, so that they start no services.
make_root() {
  [ ! -e "$root/.made" ] || return 0
  debian trixie "$root" iptables libsystemd0 libseccomp2 ca-certificates
  chroot "$root" sh -ec "cd /var/cache/apt/archives
    $apt download docker.io docker-cli docker-compose docker-buildx containerd runc tini
    dpkg --unpack ./*.deb; rm ./*.deb"
  touch "$root/.made"
}

# The client and its plugins are Go programs, which run with the machine's own C library.
environment() {
  mkdir -p "$dir/client/cli-plugins" "$dir/bin"
  ln -sf "$root"/usr/libexec/docker/cli-plugins/* "$dir/client/cli-plugins/"
  ln -sf "$root/usr/bin/docker" "$dir/bin/docker"
  echo "export DOCKER_HOST=unix://$socket DOCKER_CONFIG=$dir/client PATH=$dir/bin:\$PATH"
}

is_running() { [ -s "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; }

# The engine runs in a separate mount namespace, since runc cannot change a container's root from within a chroot. Folders that
# containers mount or are built from need the same path in there.
start_engine() {
  is_running && return
  rm -f "$pid" "$socket"
  mkdir -p "$dir/data" "$dir/run"
  # shellcheck disable=SC2016 # expanded by the inner shell
  setsid unshare --mount --propagation private bash -ec '
    root=$1 dir=$2 socket=$3 pid=$4 subnets=$5
    mount --bind "$root" "$root"
    for each in /proc /sys /dev /tmp "/$(pwd -P | cut -d/ -f2)" /home /root /srv /mnt /var/tmp; do
      [ -d "$each" ] || continue
      mkdir -p "$root$each"
      mount --rbind "$each" "$root$each"
    done
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cd "$root"
    mkdir -p old
    pivot_root . old
    cd /
    umount -l /old
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    exec dockerd --host "unix://$socket" --data-root "$dir/data" --exec-root "$dir/run/exec" --pidfile "$pid" \
      --storage-driver overlay2 --default-address-pool "base=$subnets,size=24" --bip "${subnets%.*.*}.255.1/24"
  ' engine "$root" "$dir" "$socket" "$pid" "$subnets" > "$dir/dockerd.log" 2>&1 < /dev/null &
  for _ in $(seq 150); do
    docker version > /dev/null 2>&1 && return
    sleep 0.2
  done
  tail -n 20 "$dir/dockerd.log" >&2
  fail 'the engine does not answer'
}

stop_engine() {
  is_running || return 0
  local number
  number=$(cat "$pid")
  docker ps -q | xargs -r docker stop -t 10 > /dev/null || true
  kill "$number"
  for _ in $(seq 150); do
    kill -0 "$number" 2>/dev/null || return 0
    sleep 0.2
  done
  fail "the engine ($number) does not stop"
}

# import NAME FOLDER CHANGE…: makes an image of a folder, unless it exists.
import() {
  local name=localhost/stand-in/$1 folder=$2 change changes=()
  shift 2
  for change in "$@"; do changes+=(--change "$change"); done
  docker image inspect "$name" > /dev/null 2>&1 || tar -C "$folder" -c . | docker import "${changes[@]}" - "$name" > /dev/null
}

make_images() {
  debian bookworm "$dir/base/debian"
  debian bookworm "$dir/base/redis" redis-server
  debian trixie "$dir/base/services" haproxy prometheus wget
  install -d -o 999 -g 999 "$dir/base/redis/data"
  install -d -o 65534 -g 65534 "$dir/base/services/prometheus" "$dir/base/services/etc/prometheus"
  install -d -o 99 -g 99 "$dir/base/services/var/lib/haproxy"
  import debian "$dir/base/debian" 'CMD ["bash"]'
  import redis "$dir/base/redis" 'VOLUME /data' 'WORKDIR /data' 'CMD ["redis-server"]'
  import haproxy "$dir/base/services" 'USER 99:99' 'WORKDIR /var/lib/haproxy' 'STOPSIGNAL SIGUSR1' \
    'CMD ["haproxy","-W","-db","-f","/usr/local/etc/haproxy/haproxy.cfg"]'
  import prometheus "$dir/base/services" 'USER 65534:65534' 'WORKDIR /prometheus' 'VOLUME /prometheus' \
    'ENTRYPOINT ["/usr/bin/prometheus"]'
}

step=${1:-}
case $step in
  env | start | stop | remove) eval "$(environment)" ;;
esac
case $step in
  env) environment ;;
  start)
    command -v debootstrap > /dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap > /dev/null
    mkdir -p "$dir/base"
    make_root > "$dir/make.log" 2>&1 || fail "$(tail -n 20 "$dir/make.log")"
    start_engine
    make_images >> "$dir/make.log" 2>&1 || fail "$(tail -n 20 "$dir/make.log")"
    ;;
  stop) stop_engine ;;
  remove)
    stop_engine
    ! grep -q " $dir/" /proc/self/mounts || fail "something is still mounted under $dir"
    rm -rf "$dir"
    ;;
  *)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
