#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <functional>
#include <string>

namespace pyxfer::tests {

/// The result of `action` in a forked child of this process.
inline std::string in_forked_child(std::function<std::string()> const& action) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) { return "no pipe"; }
  auto const child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = action();
    } catch (std::exception const& error) { text = std::string{"unexpected: "} + error.what(); }
    auto const written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> part{};
  for (auto got = ::read(ends[0], part.data(), part.size()); got > 0;
       got = ::read(ends[0], part.data(), part.size())) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "the child ended badly";
}

}  // namespace pyxfer::tests
