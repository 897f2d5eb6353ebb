# Options for every target of pyxfer.
add_library(pyxfer_options INTERFACE)
target_include_directories(pyxfer_options INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/csrc")
file(RELATIVE_PATH path_from_build "${CMAKE_CURRENT_BINARY_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" path_from_build "${path_from_build}")
target_compile_options(pyxfer_options INTERFACE
  # Not CMAKE_CXX_STANDARD, whose flag CMake 3 and 4 put in different places: a compiler cache would recognise nothing
  # that the other has compiled.
  -std=c++17
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<BOOL:${PYXFER_WERROR}>:-Werror>
  # Errors show __FILE__: as a path from the root of the project. ccache with a base directory compiles by paths from
  # the build folder.
  "-fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=" "-fmacro-prefix-map=${path_from_build}/=")

# Link options of the two modules. The C++ library is linked in, so that a wheel does not need a newer one than the
# machine has. libgcc is not: since GCC 12 its static unwinder needs glibc 2.35 (_dl_find_object), and NumPy needs the
# shared one anyway. The version script hides everything except the modules' entry points, also the templates of the
# C++ library, which have default visibility despite -fvisibility=hidden. Unused code is removed: std::random_device
# alone would need glibc 2.36 (arc4random).
set(exported_names "${CMAKE_CURRENT_LIST_DIR}/exported.map")
add_library(pyxfer_module_options INTERFACE)
if(PYXFER_SANITIZE)
  target_compile_options(pyxfer_options INTERFACE
    "-fsanitize=${PYXFER_SANITIZE}" -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pyxfer_options INTERFACE "-fsanitize=${PYXFER_SANITIZE}")
else()
  target_link_options(pyxfer_module_options INTERFACE
    -static-libstdc++ -Wl,--as-needed -Wl,--gc-sections "-Wl,--version-script=${exported_names}")
  set_property(TARGET pyxfer_module_options PROPERTY INTERFACE_LINK_DEPENDS "${exported_names}")
endif()
