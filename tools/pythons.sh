# shellcheck shell=bash
# Sourced by .ci/run, tools/check and tools/release: the Pythons that the wheels are for, and where they are on this machine.
PYTHONS=(3.10 3.11 3.12 3.13 3.14)

# The path of an installed Python of that version, of pyenv or on the PATH; 1 if there is none.
find_python() {
  local candidate
  for candidate in "$HOME"/.pyenv/versions/"$1".*/bin/python "python$1"; do
    if "$candidate" -c '' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
