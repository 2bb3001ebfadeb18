# Sourced: take_number chooses the network, bridge and ports of a Slurm sandbox, because other sandboxes may run. It sets $id and
# what the sandbox reads. All processes of the sandbox inherit the lock on its number, so that the kernel releases the number
# when the last of them ends for any reason.
take_number() {
  for ((id = 0; id < 200; id++)); do
    exec {number_lock}>"/run/lock/farandole-slurm-$id" || return 1
    if flock --nonblock "$number_lock" && [[ ! -e /sys/class/net/frnd$id && ! $(compgen -G "/sys/class/net/frnd$id-*") ]]; then
      export SLURM_SANDBOX_NET=10.79.$id SLURM_SANDBOX_BRIDGE=frnd$id SLURM_SANDBOX_PORT=$((20000 + id * 10))
      return
    fi
    exec {number_lock}>&-
  done
  echo "all 200 networks for Slurm sandboxes are taken, or /run/lock cannot be written" >&2
  return 1
}
# The network of a host that was killed may outlive it.
remove_links() {
  local link
  for link in $(compgen -G "/sys/class/net/frnd$id-*"); do ip link del "${link##*/}" 2>/dev/null; done
}
