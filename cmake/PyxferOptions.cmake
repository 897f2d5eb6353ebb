# What every target of pyxfer is compiled with.
add_library(pyxfer_options INTERFACE)
target_include_directories(pyxfer_options INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/csrc")
target_compile_options(pyxfer_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<BOOL:${PYXFER_WERROR}>:-Werror>
  # __FILE__ is shown in errors: from the root of the project, not from where it was built.
  "-fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=")
# The C++ runtime goes in, so that a wheel needs no newer libstdc++ than its Python's machine has; its symbols stay in.
if(NOT PYXFER_SANITIZE)
  target_link_options(pyxfer_options INTERFACE
    -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--as-needed)
else()
  target_compile_options(pyxfer_options INTERFACE
    "-fsanitize=${PYXFER_SANITIZE}" -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
  target_link_options(pyxfer_options INTERFACE "-fsanitize=${PYXFER_SANITIZE}")
endif()
